"""Data sets on disk: their place, the check of their files, and the download from their official sources.

A download with another SHA-256 than that in the registry (`data.sources`) is refused. Without a hash there, that of
the first download is written to ``first-seen.sha256`` in the folder of the data set and compared from then on. From an
archive only the files of the registry are extracted, each within a limit of size, to a path that this module chooses.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from universal_transformer.data.sources import DATASETS, Dataset, File
from universal_transformer.errors import UserError
from universal_transformer.files import set_usual_mode, show, show_path, write_text

FIRST_SEEN = "first-seen.sha256"
MAX_MEMBERS = 20_000
MAX_MEMBER_BYTES = 64 * 2**20
MAX_ARCHIVE_BYTES = 2 * 2**30  # unpacked, whether extracted or not
TIMEOUT = 60  # seconds without an answer

State = Literal["ok", "first seen", "unknown", "changed", "missing"]


@dataclass(frozen=True, kw_only=True)
class FileState:
    """One file of a data set as it is on disk.

    ok: its hash is that of the registry. first seen: the registry has no hash, and the file is as first downloaded.
    unknown: the file exists, but there is no hash to compare it with. changed: it has another hash than expected.
    """

    path: Path
    state: State


def data_folder(folder: str | Path | None = None) -> Path:
    """Return the folder with data sets: the argument, else the environment variable UT_DATA, else ``data``."""
    return Path(folder or os.environ.get("UT_DATA") or "data")


def find(name: str, folder: str | Path | None = None, *, file: str = "") -> Path:
    """Return the folder of a data set, or the path of one of its files, such as ``en/qa1_…_train.txt``.

    Raises `UserError` that names the missing file, the data folder, and how to get the file.
    """
    dataset, root = _locate(name, folder)
    wanted = [root / file] if file else [root / known.path for known in dataset.files]
    if not any(path.is_file() for path in wanted):
        raise UserError(
            f"{show_path(wanted[0])}: no such file in the data folder {show_path(data_folder(folder))}; get it with "
            f"`ut data fetch {name}`, or name the folder that has it with --data-dir or UT_DATA"
        )
    return wanted[0] if file else root


def check(name: str, folder: str | Path | None = None) -> list[FileState]:
    """Return the state of every file of a data set; it is complete if all are "ok" or "first seen"."""
    dataset, root = _locate(name, folder)
    recorded = _recorded(root)
    return [
        FileState(path=root / file.path, state=_state(root / file.path, file.sha256, recorded.get(file.path)))
        for file in dataset.files
    ]


def fetch(
    name: str, folder: str | Path | None = None, *, report: Callable[[str], None] | None = None
) -> list[FileState]:
    """Download the missing files of a data set from its official source, and return `check`.

    `report` is called with one line for each step. Files appear whole or not at all. Raises `UserError` for a source
    that cannot be reached, a hash that differs, an archive that is not the expected one, and for a file on disk
    that was changed (it is not overwritten).
    """
    report = report or (lambda _: None)
    dataset, root = _locate(name, folder)
    states = check(name, folder)
    for state in states:
        if state.state == "changed":
            raise UserError(f"{show_path(state.path)}: differs from the published file; move it away to fetch it again")
    missing = [file for file, state in zip(dataset.files, states, strict=True) if state.state == "missing"]
    if missing:
        _import_pooch()  # before anything is written to disk
    try:
        root.mkdir(parents=True, exist_ok=True)
        for file in missing:
            if not file.url:
                continue
            report(f"{file.url} -> {show_path(root / file.path)}")
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as staging:
                _install(file, _download(file, Path(staging), root), root, report)
        members = [file for file in missing if not file.url]
        if members:
            _fetch_members(dataset, members, root, report)
    except OSError as error:
        raise UserError(f"{show_path(root)}: cannot be written ({show(error.strerror or str(error))})") from error
    return check(name, folder)


def _locate(name: str, folder: str | Path | None) -> tuple[Dataset, Path]:
    """Return a data set, and the first of its places that has any of its files, or else the first place."""
    if name not in DATASETS:
        raise UserError(f"no data set {show(name)}; known are {', '.join(DATASETS)}")
    dataset, base = DATASETS[name], data_folder(folder)
    for place in dataset.places:
        if any((base / place / file.path).is_file() for file in dataset.files):
            return dataset, base / place
    return dataset, base / dataset.places[0]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _state(path: Path, pinned: str | None, recorded: str | None) -> State:
    if not path.is_file():
        return "missing"
    expected = pinned or recorded
    if expected is None:
        return "unknown"
    if sha256(path) != expected:
        return "changed"
    return "ok" if pinned else "first seen"


def _recorded(root: Path) -> dict[str, str]:
    """Read the recorded hashes, a file in the format of ``sha256sum``."""
    path = root / FIRST_SEEN
    if not path.is_file():
        return {}
    hashes = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), start=1):
        if not line:
            continue
        digest, _, name = line.partition("  ")
        if len(digest) != 64 or not name:
            raise UserError(f"{show_path(path)}:{number}: found {show(line)}; expected a SHA-256, two blanks, a file")
        hashes[name] = digest
    return hashes


def _record(root: Path, name: str, digest: str) -> None:
    hashes = {**_recorded(root), name: digest}
    write_text(root / FIRST_SEEN, "".join(f"{value}  {key}\n" for key, value in sorted(hashes.items())))


def _import_pooch() -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        raise UserError("downloads need the extra `fetch`: pip install 'universal-transformer[fetch]'") from error
    pooch.get_logger().setLevel("WARNING")
    return pooch


def _download(file: File, staging: Path, root: Path) -> Path:
    """Download to `staging`; the hash, of the registry or recorded in `root`, is compared before the file is named."""
    pooch = _import_pooch()
    expected = file.sha256 or _recorded(root).get(file.path)
    try:
        return Path(
            pooch.retrieve(
                file.url,
                known_hash=f"sha256:{expected}" if expected else None,
                fname=Path(file.path).name,
                path=staging,
                downloader=pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=2**16),
            )
        )
    except ValueError as error:  # pooch raises it for a wrong hash
        raise UserError(f"{file.url}: what came is not the file of SHA-256 {expected}; nothing was kept") from error
    except OSError as error:  # requests' errors are OSErrors
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # pooch leaves the connection of a refused request open
        raise UserError(f"{file.url}: cannot be downloaded ({show(str(error), limit=120)})") from error


def _install(file: File, arrived: Path, root: Path, report: Callable[[str], None]) -> None:
    """Move a downloaded or extracted file to its place; record its hash if the registry has none."""
    digest = sha256(arrived)
    expected = file.sha256 or _recorded(root).get(file.path)
    if expected and digest != expected:
        raise UserError(f"{file.path}: SHA-256 {digest}, but {expected} is expected; nothing was kept")
    if not file.sha256:
        _record(root, file.path, digest)
        if not expected:
            report(f"{file.path}: no hash known beforehand; {digest} noted in {FIRST_SEEN} as first seen")
    (root / file.path).parent.mkdir(parents=True, exist_ok=True)
    set_usual_mode(arrived)
    os.replace(arrived, root / file.path)


def _fetch_members(dataset: Dataset, members: list[File], root: Path, report: Callable[[str], None]) -> None:
    failures = []
    for archive in dataset.archives:
        report(f"{archive.url} -> {show_path(root)}")
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as staging:
            try:
                arrived = _download(archive, Path(staging), root)
                wanted = {
                    dataset.archive_prefix + file.path: Path(staging) / f"member-{number}"
                    for number, file in enumerate(members)
                }
                extract(arrived, wanted)
            except UserError as error:
                failures.append(str(error))
                continue
            for file in members:
                _install(file, wanted[dataset.archive_prefix + file.path], root, report)
            if not archive.sha256:
                _record(root, archive.path, sha256(arrived))
                report(f"{archive.path}: no hash known beforehand; noted in {FIRST_SEEN} as first seen")
            return
    raise UserError("; ".join(failures))


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
