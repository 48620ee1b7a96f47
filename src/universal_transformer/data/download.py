"""Data sets on disk: their place, the check of their files, and the download from their official sources.

A download with another SHA-256 than that in the registry (`data.sources`) is refused. Without a hash there, that of
the first download is written to ``first-seen.sha256`` in the folder of the data set and compared from then on. From an
archive only the files of the registry are extracted, each within a limit of size, to a path that this module chooses.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal
from urllib.parse import urlsplit

from universal_transformer.data.archive import read_members
from universal_transformer.data.sources import DATASETS, Dataset, File
from universal_transformer.errors import UserError
from universal_transformer.files import set_usual_mode, show, show_path, write_bytes, write_text

FIRST_SEEN = "first-seen.sha256"
TIMEOUT = 60  # seconds without an answer

State = Literal["ok", "first seen", "unknown", "changed", "missing"]
INTACT: frozenset[State] = frozenset({"ok", "first seen"})


@dataclass(frozen=True, kw_only=True)
class FileState:
    """One file of a data set as it is on disk.

    ok: its hash is that of the registry. first seen: the registry has no hash, and the file is as first downloaded.
    unknown: the file exists, but there is no hash to compare it with. changed: it has another hash than expected.
    """

    path: Path
    state: State
    url: str = ""
    """Its official address; "" for a file that is in an archive."""


class _UnreachableError(UserError):
    """No answer from the server of a file."""

    def __init__(self, file: File) -> None:
        super().__init__(f"no network: {urlsplit(file.url).hostname} cannot be reached")
        self.file = file


def data_folder(folder: str | Path | None = None) -> Path:
    """Return the folder with data sets: the argument, else the environment variable UT_DATA, else ``data``."""
    return Path(folder or os.environ.get("UT_DATA") or "data")


def find(name: str, folder: str | Path | None = None, *, file: str = "") -> Path:
    """Return the folder of a data set, or the path of one of its files, such as ``en/qa1_…_train.txt``.

    Raises `UserError` that names the missing file, the data folder, and how to get the file.
    """
    dataset, root = _locate(name, folder)
    packed = () if dataset.packed is None else (dataset.packed,)
    wanted = [root / file] if file else [root / known.path for known in (*dataset.files, *packed)]
    if not any(path.is_file() for path in wanted):
        raise UserError(
            f"{show_path(wanted[0])}: no such file in the data folder {show_path(data_folder(folder))}; get it with "
            f"`ut data fetch {name}`, or name the folder that has it with --data-dir or UT_DATA"
        )
    return wanted[0] if file else root


def folder_of(name: str, folder: str | Path | None = None) -> Path:
    """Return the folder in which a data set lies, or else that into which `fetch` would put it."""
    return _locate(name, folder)[1]


def check(name: str, folder: str | Path | None = None) -> list[FileState]:
    """Return the state of every file of a data set; it is complete if all are "ok" or "first seen".

    A file that is missing has the state of the archive that lies in its place, if there is one.
    """
    dataset, root = _locate(name, folder)
    recorded, packed = _recorded(root), _packed(dataset, root)
    states = []
    for file in dataset.files:
        path = root / file.path
        state = _state(path, file.sha256, recorded.get(file.path))
        if state == "missing" and packed is not None:
            states.append(packed)
        else:
            states.append(FileState(path=path, state=state, url=file.url))
    return states


def _packed(dataset: Dataset, root: Path) -> FileState | None:
    """Return the state of the archive in the place of the files, if there is one."""
    if dataset.packed is None or not (path := root / dataset.packed.path).is_file():
        return None
    return FileState(path=path, state=_state(path, dataset.packed.sha256, None))


def overall(states: Sequence[FileState]) -> str:
    """Return the state of a whole data set: "ok", "changed", "missing", "incomplete", or "unknown"."""
    found = {one.state for one in states}
    if "changed" in found:
        return "changed"
    if "missing" in found:
        return "missing" if len(found) == 1 else "incomplete"
    return "ok" if found <= INTACT else "unknown"


def fetch(
    name: str, folder: str | Path | None = None, *, report: Callable[[str], None] | None = None
) -> list[FileState]:
    """Download the missing files of a data set from its official source, and return `check`.

    `report` is called with one line for each step. Files appear whole or not at all. An archive that lies in the folder
    of the data set is used in place of a download. Raises `UserError` for a source that cannot be reached (it says
    where to put the file by hand), a hash that differs, an archive that is not the expected one, and for a file on
    disk that was changed (it is not overwritten).
    """
    report = report or (lambda _: None)
    dataset, root = _locate(name, folder)
    states = check(name, folder)
    for state in states:
        if state.state == "changed":
            raise UserError(f"{show_path(state.path)}: differs from the published file; move it away to fetch it again")
    missing = [file for file, state in zip(dataset.files, states, strict=True) if state.state == "missing"]
    if wanted := _to_download(dataset, missing, root):
        _import_pooch(wanted[0], root)  # before anything is written to disk
    try:
        root.mkdir(parents=True, exist_ok=True)
        for file in missing:
            if not file.url:
                continue
            _note_first(file, _download(file, root / file.path, root), root, report)
            report(f"{file.url} -> {show_path(root / file.path)}")
        members = [file for file in missing if not file.url]
        if members:
            _fetch_members(dataset, members, root, report)
    except _UnreachableError as error:
        raise UserError(f"{error}; {_by_hand(name, error.file, root, others=len(missing) - 1)}") from error
    except OSError as error:
        raise UserError(f"{show_path(root)}: cannot be written ({show(error.strerror or str(error))})") from error
    return check(name, folder)


def _to_download(dataset: Dataset, missing: Sequence[File], root: Path) -> list[File]:
    """Return what has to be downloaded: the missing files, and the archive of those without an address."""
    single = [file for file in missing if file.url]
    needed = len(single) < len(missing) and not any((root / archive.path).is_file() for archive in dataset.archives)
    return [*single, *(dataset.archives if needed else ())]


def _by_hand(name: str, file: File, root: Path, *, others: int) -> str:
    """Say where to put a file that could not be downloaded."""
    place = f"download {file.url} by hand and save it as {show_path(root / file.path)}"
    if file in DATASETS[name].archives:
        return f"{place}, then run: ut data fetch {name}"
    more = f"; `ut data check {name}` lists {others} more missing files with their addresses" if others else ""
    return place + more


def _locate(name: str, folder: str | Path | None) -> tuple[Dataset, Path]:
    """Return a data set, and the first of its places that has any of its files, or else the first place."""
    if name not in DATASETS:
        raise UserError(f"no data set {show(name)}; known are {', '.join(DATASETS)}")
    dataset, base = DATASETS[name], data_folder(folder)
    for place in dataset.places:
        files = (*dataset.files, *([dataset.packed] if dataset.packed else ()))
        if any((base / place / file.path).is_file() for file in files):
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


def _import_pooch(file: File, root: Path) -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        raise UserError(
            "downloads need the extra `fetch`: pip install 'universal-transformer[fetch]'; without it, save "
            f"{file.url} as {show_path(root / file.path)}"
        ) from error
    pooch.get_logger().setLevel("WARNING")
    return pooch


def _download(file: File, path: Path, root: Path) -> str:
    """Download to `path`, and return the SHA-256; it is compared with that of the registry or of `root` before."""
    pooch, expected = _import_pooch(file, root), _expected(file, root)
    try:
        pooch.retrieve(
            file.url,
            known_hash=f"sha256:{expected}" if expected else None,
            fname=path.name,
            path=path.parent,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=2**16),
        )
    except ValueError as error:  # pooch raises it for a wrong hash
        raise UserError(f"{file.url}: what came is not the file of SHA-256 {expected}; nothing was kept") from error
    except OSError as error:  # requests' errors are OSErrors
        if (response := getattr(error, "response", None)) is None:
            raise _UnreachableError(file) from error
        response.close()  # pooch leaves the connection of a refused request open
        raise UserError(f"{file.url}: cannot be downloaded ({show(str(error), limit=120)})") from error
    set_usual_mode(path)
    return expected or sha256(path)


def _expected(file: File, root: Path) -> str | None:
    """Return the SHA-256 of the registry, or of the first download."""
    return file.sha256 or _recorded(root).get(file.path)


def _note_first(file: File, digest: str, root: Path, report: Callable[[str], None]) -> None:
    """Record the hash of a file if none was known."""
    if not _expected(file, root):
        _record(root, file.path, digest)
        report(f"{file.path}: no hash known beforehand; {digest} noted in {FIRST_SEEN} as first seen")


def _fetch_members(dataset: Dataset, files: list[File], root: Path, report: Callable[[str], None]) -> None:
    """Write the files that are in an archive: one that was put into the folder of the data set by hand, or a download.

    Nothing is written unless all of them have the hashes that are expected.
    """
    failures: list[UserError] = []
    for archive in dataset.archives:
        try:
            contents, digest = _members(dataset, archive, files, root)
        except UserError as error:
            failures.append(error)
            continue
        for file in files:
            (root / file.path).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(root / file.path, contents[file.path])
            _note_first(file, hashlib.sha256(contents[file.path]).hexdigest(), root, report)
        report(f"{archive.url} -> {show_path(root)}")
        return _note_first(archive, digest, root, report)
    if all(isinstance(error, _UnreachableError) for error in failures):
        raise failures[0]
    raise UserError("; ".join(map(str, failures)))


def _members(dataset: Dataset, archive: File, files: list[File], root: Path) -> tuple[dict[str, bytes], str]:
    """Return the contents of files by their path, checked, and the hash of the archive."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as staging:
        place = root / archive.path
        if place.is_file():
            digest = sha256(place)
            if archive.sha256 and digest != archive.sha256:
                raise UserError(
                    f"{show_path(place)}: SHA-256 {digest}, but {archive.sha256} is expected; delete this file"
                )
        else:
            place = Path(staging) / Path(archive.path).name
            digest = _download(archive, place, root)
        packed = read_members(place, [dataset.archive_prefix + file.path for file in files])
    contents = {file.path: packed[dataset.archive_prefix + file.path] for file in files}
    for file in files:
        found, expected = hashlib.sha256(contents[file.path]).hexdigest(), _expected(file, root)
        if expected and found != expected:
            raise UserError(f"{file.path}: SHA-256 {found}, but {expected} is expected; nothing was kept")
    return contents, digest
