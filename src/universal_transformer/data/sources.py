"""The registry of data sets: official addresses, and the SHA-256 of every file that is known.

``sources.json`` has the entries. A hash in it was taken from a copy of the published file, with one exception: the hash
of ``babi.tar.gz`` is quoted from projects that downloaded the archive (they name ParlAI's build script as its source).
Null means that no copy was available: the hash of the first download is recorded, and later downloads are compared
with it. The second archive of bAbI is at the address that the paper's authors gave, which is reported to be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType

from universal_transformer.files import read_json
from universal_transformer.typed import typed

REGISTRY = Path(__file__).with_name("sources.json")


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a data set. A file without an address is in the data set's archive."""

    path: str
    sha256: str | None
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set: its files, and the folders in which it may lie (`fetch` puts it into the first)."""

    about: str
    licence: str
    places: tuple[str, ...]
    files: tuple[File, ...]
    archives: tuple[File, ...] = ()
    """Archives with the files that have no address of their own. The first that can be downloaded is used."""
    archive_prefix: str = ""
    """The folder of the files inside the archive, with a slash at its end."""


@dataclass(frozen=True)
class _Folder:
    """Files of one folder: `url` + name is the address, `into` + name the path on disk."""

    url: str
    into: str
    sha256: dict[str, str | None]


@dataclass(frozen=True)
class _Entry:
    """A data set as ``sources.json`` has it; `patterns` are paths without a hash, with the values of each ``{}``."""

    about: str
    licence: str
    places: tuple[str, ...]
    files: tuple[File, ...]
    folders: tuple[_Folder, ...]
    patterns: dict[str, tuple[tuple[str, ...], ...]]
    archives: tuple[File, ...]
    archive_prefix: str

    def dataset(self) -> Dataset:
        """Return the data set with all its files."""
        files = list(self.files)
        for folder in self.folders:
            files += [
                File(path=folder.into + name, sha256=sha256, url=folder.url and folder.url + name)
                for name, sha256 in folder.sha256.items()
            ]
        for pattern, values in self.patterns.items():
            files += [File(path=pattern.format(*chosen), sha256=None) for chosen in product(*values)]
        return Dataset(
            about=self.about,
            licence=self.licence,
            places=self.places,
            files=tuple(files),
            archives=self.archives,
            archive_prefix=self.archive_prefix,
        )


def _read(path: Path) -> Mapping[str, Dataset]:
    entries: dict[str, _Entry] = typed(read_json(path), dict[str, _Entry], where=path.name)
    return MappingProxyType({name: entry.dataset() for name, entry in entries.items()})


DATASETS = _read(REGISTRY)
