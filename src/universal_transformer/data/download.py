"""Data sets on disk: their place, the check of their files, and the download from their official sources.

A download with another SHA-256 than that in the registry (`data.sources`) is refused. Without a hash there, that of
the first download is written to ``first-seen.json`` in the folder of the data set and compared from then on. From an
archive only the files of the registry are extracted, each within a limit of size, to a path that this module chooses.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from universal_transformer.data.archive import members, read_members
from universal_transformer.data.sources import DATASETS, File
from universal_transformer.errors import UserError, optional
from universal_transformer.files import read_bytes, read_json, set_usual_mode, show, show_path, write_bytes, write_json
from universal_transformer.manifest import entry_of, entry_of_file
from universal_transformer.typed import typed

FIRST_SEEN = "first-seen.json"
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
    local = LocalDataset(name, folder)
    wanted = [local.root / file] if file else [local.root / path for path in local.paths]
    if not any(path.is_file() for path in wanted):
        raise UserError(
            f"{show_path(wanted[0])}: no such file in the data folder {show_path(data_folder(folder))}; get it with "
            f"`ut data fetch {name}`, or name the folder that has it with --data-dir or UT_DATA"
        )
    return wanted[0] if file else local.root


class LocalDataset:
    """The files of a data set: below the data folder, or in the archive that lies in their place."""

    def __init__(self, name: str, folder: str | Path | None = None) -> None:
        if name not in DATASETS:
            raise UserError(f"no data set {show(name)}; known are {', '.join(DATASETS)}")
        self.name, self.folder, self.dataset = name, folder, DATASETS[name]
        packed = [self.dataset.packed.path] if self.dataset.packed else []
        self.paths = [*(file.path for file in self.dataset.files), *packed]
        places = [data_folder(folder) / place for place in self.dataset.places]
        here = (place for place in places if any((place / path).is_file() for path in self.paths))
        self.root = next(here, places[0])
        """The first of its places that has any of its files, or else the first place."""

    def __getitem__(self, path: str) -> tuple[str, bytes]:
        """Return the name of a file for messages, and its content; UserError, which says how to get it, if none."""
        if not (self.root / path).is_file() and path in self._archived:
            return self._archived[path]
        file = find(self.name, self.folder, file=path)
        return show_path(file), read_bytes(file, what="a file of a data set")

    @cached_property
    def _archived(self) -> Mapping[str, tuple[str, bytes]]:
        if (archive := self._archive) is None:
            return {}
        contents = members(archive.path, {file.path for file in self.dataset.files}.__contains__)
        return {path: (f"{show_path(archive.path)}: {path}", content) for path, content in contents}

    @cached_property
    def _archive(self) -> FileState | None:
        packed = self.dataset.packed
        return self.state(packed) if packed and (self.root / packed.path).is_file() else None

    def state(self, file: File) -> FileState:
        """Return the state of a file; one that is missing has that of the archive in its place, if there is one."""
        path, expected = self.root / file.path, self.expected(file)
        state: State = "ok" if file.sha256 else "first seen"
        if not path.is_file():
            if self._archive:
                return self._archive
            state = "missing"
        elif expected is None:
            state = "unknown"
        elif entry_of_file(path).sha256 != expected:
            state = "changed"
        return FileState(path=path, state=state, url=file.url)

    def expected(self, file: File) -> str | None:
        """Return the SHA-256 of the registry, or of the first download."""
        return file.sha256 or self._first_seen.get(file.path)

    @cached_property
    def _first_seen(self) -> dict[str, str]:
        path = self.root / FIRST_SEEN
        hashes: dict[str, str] = typed(read_json(path), dict[str, str], where=show_path(path)) if path.is_file() else {}
        return hashes

    def note_first(self, file: File, digest: str, report: Callable[[str], None]) -> None:
        if not self.expected(file):
            self._first_seen[file.path] = digest
            write_json(self.root / FIRST_SEEN, self._first_seen)
            report(f"{file.path}: no hash known beforehand; {digest} noted in {FIRST_SEEN} as first seen")


def check(name: str, folder: str | Path | None = None) -> list[FileState]:
    """Return the state of every file of a data set; it is complete if all are "ok" or "first seen"."""
    local = LocalDataset(name, folder)
    return [local.state(file) for file in local.dataset.files]


def overall(states: Sequence[FileState]) -> str:
    """Return the state of a whole data set: "ok", "changed", "missing", "incomplete", or "unknown"."""
    found = {file.state for file in states}
    if "changed" in found:
        return "changed"
    if "missing" in found:
        return "missing" if len(found) == 1 else "incomplete"
    return "ok" if found <= INTACT else "unknown"


def fetch(
    name: str, folder: str | Path | None = None, *, report: Callable[[str], None] = lambda _: None
) -> list[FileState]:
    """Download the missing files of a data set from its official source, and return `check`.

    `report` is called with one line for each step. Files appear whole or not at all. An archive that lies in the folder
    of the data set is used in place of a download. Raises `UserError` for a source that cannot be reached (it says
    where to put the file by hand), a hash that differs, an archive that is not the expected one, and for a file on
    disk that was changed (it is not overwritten).
    """
    local, states = LocalDataset(name, folder), check(name, folder)
    for state in states:
        if state.state == "changed":
            raise UserError(f"{show_path(state.path)}: differs from the published file; move it away to fetch it again")
    missing = [file for file, state in zip(local.dataset.files, states, strict=True) if state.state == "missing"]
    single, packed = [file for file in missing if file.url], [file for file in missing if not file.url]
    archive = local.dataset.archive if packed else None
    by_hand = archive is not None and (local.root / archive.path).is_file()
    for file in [*single, *([archive] if archive and not by_hand else [])][:1]:
        _pooch(file, local.root)  # before anything is written to disk
    try:
        local.root.mkdir(parents=True, exist_ok=True)
        for file in single:
            local.note_first(file, _download(file, local.root / file.path, local), report)
            report(f"{file.url} -> {show_path(local.root / file.path)}")
        if archive:
            _fetch_members(archive, packed, local, report)
    except _UnreachableError as error:
        place = f"download {error.file.url} by hand and save it as {show_path(local.root / error.file.path)}"
        more = f"; `ut data check {name}` lists {len(missing) - 1} more missing files with their addresses"
        then = f", then run: ut data fetch {name}" if error.file == archive else more * (len(missing) > 1)
        raise UserError(f"{error}; {place}{then}") from error
    except OSError as error:
        raise UserError(f"{show_path(local.root)}: cannot be written ({show(error.strerror or str(error))})") from error
    return check(name, folder)


def _pooch(file: File, root: Path) -> Any:
    by_hand = f"without it, save {file.url} as {show_path(root / file.path)}"
    pooch = optional("pooch", needed=f"downloads need a package; {by_hand}", extra="fetch")
    pooch.get_logger().setLevel("WARNING")
    return pooch


def _download(file: File, path: Path, local: LocalDataset) -> str:
    """Download to `path`, and return the SHA-256; it is compared with the one that is expected before."""
    pooch, expected = _pooch(file, local.root), local.expected(file)
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
    return expected or entry_of_file(path).sha256


def _fetch_members(archive: File, files: list[File], local: LocalDataset, report: Callable[[str], None]) -> None:
    """Write the files that are in an archive: one that was put into the folder of the data set by hand, or a download.

    Nothing is written unless all of them have the hashes that are expected.
    """
    place, prefix = local.root / archive.path, local.dataset.archive_prefix
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=local.root) as staging:
        if not place.is_file():
            place = Path(staging) / place.name
            _download(archive, place, local)
        digest = _checked(entry_of_file(place).sha256, archive.sha256, f"{show_path(place)} (delete it)")
        packed = read_members(place, [prefix + file.path for file in files])
    contents = [(file, packed[prefix + file.path]) for file in files]
    digests = [_checked(entry_of(content).sha256, local.expected(file), file.path) for file, content in contents]
    for (file, content), found in zip(contents, digests, strict=True):
        path = local.root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
        local.note_first(file, found, report)
    report(f"{archive.url} -> {show_path(local.root)}")
    local.note_first(archive, digest, report)


def _checked(digest: str, expected: str | None, what: str) -> str:
    if expected and digest != expected:
        raise UserError(f"{what}: SHA-256 {digest}, but {expected} is expected; nothing was kept")
    return digest
