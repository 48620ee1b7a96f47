"""The registry of data sets: official addresses, and the SHA-256 of every file that is known.

``sources.json`` has the entries. A hash in it was taken from a copy of the published file, with one exception: the hash
of ``babi.tar.gz`` is quoted from projects that downloaded the archive (they name ParlAI's build script as its source).
Null means that no copy was available: the hash of the first download is recorded, and later downloads are compared
with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from universal_transformer.files import read_json

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
    archive: File | None = None
    """An archive with the files that have no address of their own."""
    packed: File | None = None
    """An archive that may lie in the place of files, and from which they are read as it is; it has no address."""
    archive_prefix: str = ""
    """The folder of the files inside the archive, with a slash at its end."""


def _dataset(entry: dict[str, Any]) -> Dataset:
    """Return an entry of ``sources.json`` with all its files.

    A folder has the hash of each file: `url` + name is its address, `into` + name its path on disk. A pattern is a path
    without a hash, with the values of each ``{}``.
    """
    files = [File(**file) for file in entry.pop("files")]
    for folder in entry.pop("folders"):
        files += [
            File(path=folder["into"] + name, sha256=sha256, url=folder["url"] and folder["url"] + name)
            for name, sha256 in folder["sha256"].items()
        ]
    for pattern, values in entry.pop("patterns").items():
        files += [File(path=pattern.format(*chosen), sha256=None) for chosen in product(*values)]
    archives: dict[str, Any] = {name: File(**entry.pop(name)) for name in ("archive", "packed") if name in entry}
    return Dataset(files=tuple(files), places=tuple(entry.pop("places")), **archives, **entry)


DATASETS: Mapping[str, Dataset] = {name: _dataset(entry) for name, entry in read_json(REGISTRY).items()}
