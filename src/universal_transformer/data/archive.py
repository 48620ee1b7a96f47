"""Single files from a ``.tar.gz`` of someone else: nothing is written but what is asked for, within limits of size."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path

MAX_MEMBERS = 20_000
MAX_MEMBER_BYTES = 64 * 2**20
MAX_ARCHIVE_BYTES = 2 * 2**30  # unpacked, whether extracted or not


class _Limited:
    """A stream with a limit of bytes, because a small archive can unpack to any size."""

    def __init__(self, stream: gzip.GzipFile, *, limit: int):
        self.stream = stream
        self.left = limit

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise tarfile.ReadError("more bytes than allowed")
        return data


def extract(
    archive: Path,
    wanted: Mapping[str, Path],
    *,
    max_member_bytes: int = MAX_MEMBER_BYTES,
    max_archive_bytes: int = MAX_ARCHIVE_BYTES,
) -> None:
    """Write the members of a ``.tar.gz`` named in `wanted` to the paths given there, and nothing else.

    The archive is read as a stream; its names only identify members. Raises `UserError` for a damaged archive, too many
    members or bytes, and a wanted member that is missing, repeated, too large or not a plain file (a link, a device);
    then none of the paths is left on disk.
    """
    name = show_path(archive)
    found: set[str] = set()
    try:
        with gzip.open(archive, "rb") as unpacked:
            stream = _Limited(unpacked, limit=max_archive_bytes)
            with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]
                for number, member in enumerate(tar):
                    if number >= MAX_MEMBERS:
                        raise tarfile.ReadError(f"more than {MAX_MEMBERS} members")
                    plain = member.name.removeprefix("./")
                    if plain in wanted:
                        _check_member(member, repeated=plain in found, limit=max_member_bytes)
                        found.add(plain)
                        _write_member(tar, member, wanted[plain])
        if absent := wanted.keys() - found:
            raise tarfile.ReadError(f"{min(absent)} is not in it")
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError) as error:
        for path in wanted.values():
            path.unlink(missing_ok=True)
        raise UserError(f"{name}: not the archive expected ({show(str(error), limit=120)})") from error


def _check_member(member: tarfile.TarInfo, *, repeated: bool, limit: int) -> None:
    if repeated:
        raise tarfile.ReadError(f"{member.name} is in it twice")
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise tarfile.ReadError(f"{member.name} is not a plain file")
    if not 0 <= member.size <= limit:
        raise tarfile.ReadError(f"{member.name} has {member.size} bytes, more than {limit}")


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None, "a plain file has content"
    with source, path.open("xb") as target:
        shutil.copyfileobj(source, target)
    if path.stat().st_size != member.size:
        raise tarfile.ReadError(f"{member.name} is cut short")
