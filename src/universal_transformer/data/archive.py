"""Files from a ``.tar.gz`` or ``.tar.xz`` of someone else, as bytes within limits of size: nothing is written."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path

MAX_MEMBERS = 20_000
MAX_MEMBER_BYTES = 64 * 2**20
MAX_ARCHIVE_BYTES = 2 * 2**30  # unpacked, whether read or not
MAX_HEADER_BYTES = 2**20  # of long names and further fields: tarfile reads them whole


def members(
    archive: Path,
    wanted: Callable[[str], bool],
    *,
    max_member_bytes: int = MAX_MEMBER_BYTES,
    max_archive_bytes: int = MAX_ARCHIVE_BYTES,
) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the members whose names are `wanted`; the archive is read as a stream.

    Raises `UserError` for a damaged archive, too many members or bytes, and a wanted member that is repeated, too large
    or not a plain file (a link, a device).
    """
    seen: set[str] = set()
    try:
        with tarfile.open(archive, mode="r|*", tarinfo=_Member) as tar:
            for number, member in enumerate(tar):
                if number >= MAX_MEMBERS:
                    raise tarfile.ReadError(f"more than {MAX_MEMBERS} members")
                name = member.name.removeprefix("./")
                if member.offset_data + member.size > max_archive_bytes:  # a small archive can unpack to any size
                    raise tarfile.ReadError("more bytes than allowed")
                if wanted(name):
                    if name in seen:
                        raise tarfile.ReadError(f"{name} is in it twice")
                    seen.add(name)
                    yield name, _content(tar, member, limit=max_member_bytes)
    except (tarfile.TarError, lzma.LZMAError, EOFError, zlib.error, OSError, ValueError, OverflowError) as error:
        raise UserError(f"{show_path(archive)}: not the archive expected ({show(str(error), limit=120)})") from error


def read_members(archive: Path, names: Collection[str], **limits: int) -> dict[str, bytes]:
    """Return the contents of the members with these names; UserError, besides those of `members`, if one is missing."""
    contents = dict(members(archive, set(names).__contains__, **limits))
    if absent := set(names) - contents.keys():
        raise UserError(f"{show_path(archive)}: not the archive expected ({min(absent)} is not in it)")
    return contents


class _Member(tarfile.TarInfo):
    """A member whose headers have a limit of size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        plain = member.type in tarfile.SUPPORTED_TYPES and member.type not in tarfile.GNU_TYPES
        if not plain and member.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError("a header of too many bytes")
        return member


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, *, limit: int) -> bytes:
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise tarfile.ReadError(f"{member.name} is not a plain file")
    if not 0 <= member.size <= limit:
        raise tarfile.ReadError(f"{member.name} has {member.size} bytes, more than {limit}")
    source = tar.extractfile(member)
    assert source is not None, "a plain file has content"
    content = source.read()
    if len(content) != member.size:
        raise tarfile.ReadError(f"{member.name} is cut short")
    return content
