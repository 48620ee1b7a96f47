"""Arrays of whole numbers: in memory, or in files that are mapped into memory, made once and opened by every run.

A store on disk is a folder: a file of plain numbers for each array, other files (a tokenizer), ``index.json`` with the
types of the arrays, and the manifest of all files. It is written under another name and renamed when it is whole.
Nothing of it is read before its content is compared with the manifest.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np

from universal_transformer.errors import UserError
from universal_transformer.files import new_folder, read_json, show_path, write_json
from universal_transformer.manifest import MANIFEST, check_content, read_manifest, seal
from universal_transformer.typed import typed

INDEX = "index.json"
LOCK = "lock"
KEPT = 3
"""Stores of one source that are kept, those used last: with other tokenizers, or of earlier content."""
Kind = Literal["uint8", "uint16", "int32", "int64"]


@dataclass
class StoreIndex:
    """The content of ``index.json``."""

    arrays: dict[str, Kind] = field(default_factory=dict)
    """Type of the numbers of each array."""
    notes: tuple[str, ...] = ()
    held_out: dict[str, list[dict[str, str | list[str]]]] = field(default_factory=dict)
    """Rows that are in no array, by part."""
    longest_target: int = 0
    """Tokens of the longest target of pairs."""


@dataclass(frozen=True)
class TokenStore:
    """Arrays with what belongs to them; those on disk are mapped, and read as they are used."""

    index: StoreIndex
    arrays: Mapping[str, np.ndarray]
    folder: Path | None = None
    """None for a store in memory."""

    @property
    def digest(self) -> str:
        """A text that changes with any number of any array on disk."""
        assert self.folder is not None
        entries = read_manifest(self.folder)
        return " ".join(f"{name} {entries[name].sha256}" for name in sorted(self.arrays))


@dataclass
class StoreWriter:
    """Makes a store: arrays grow by `append`, and the notes and rows of `index` are kept with them."""

    folder: Path | None = None
    """Where the arrays are files, among which others may be written; None for a store in memory."""
    index: StoreIndex = field(default_factory=StoreIndex)
    _files: dict[str, BinaryIO] = field(default_factory=dict)

    def append(self, name: str, values: np.ndarray, *, kind: Kind) -> None:
        if name not in self._files:
            self._files[name] = (self.folder / name).open("wb") if self.folder else BytesIO()
            self.index.arrays[name] = kind
        self._files[name].write(values.astype(kind).tobytes())

    def in_memory(self) -> TokenStore:
        contents = {name: file.getvalue() for name, file in self._files.items() if isinstance(file, BytesIO)}
        arrays = {name: np.frombuffer(contents[name], dtype=kind) for name, kind in self.index.arrays.items()}
        return TokenStore(self.index, arrays)

    def finish(self, folder: Path) -> None:
        """Write index and manifest; every file is on the disk afterwards."""
        self.close()
        write_json(folder / INDEX, asdict(self.index))
        seal(folder)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def smallest_kind(size: int) -> Kind:
    kinds: tuple[Kind, ...] = get_args(Kind)
    return next(kind for kind in kinds if size - 1 <= np.iinfo(kind).max)


def open_or_make(folder: Path, make: Callable[[StoreWriter], None]) -> TokenStore:
    """Open the store `folder`, which `make` writes if it is not there; other processes wait for the one that does.

    The same parent folder has the other stores of the same source; `KEPT` of all remain. UserError
    for a disk that is full or cannot be written to.
    """
    parent = folder.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / LOCK).open("a") as lock:  # closing it ends the lock
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                for left in parent.glob(".*.partial"):  # of a killed process: the lock is ours
                    shutil.rmtree(left)
                with new_folder(folder) as staging, closing(StoreWriter(staging)) as writer:
                    make(writer)
                    writer.finish(staging)
                _remove_others(folder)
            os.utime(folder)
    except OSError as error:
        raise UserError(
            f"{show_path(error.filename or folder)}: {error.strerror or error}; tokens of large data are written below "
            "the data folder: --data-dir or UT_DATA names another"
        ) from error
    return open_store(folder)


def _remove_others(folder: Path) -> None:
    stores = [path.parent for path in folder.parent.glob(f"*/{MANIFEST}") if path.parent != folder]
    for old in sorted(stores, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT - 1 :]:
        shutil.rmtree(old)


def open_store(folder: Path) -> TokenStore:
    """Map the arrays of a store after every check; anything that `StoreWriter` did not write is a UserError."""
    try:
        check_content(folder)
        index: StoreIndex = typed(read_json(folder / INDEX), StoreIndex, where=show_path(folder / INDEX))
        arrays = {name: _mapped(folder / name, kind) for name, kind in index.arrays.items()}
    except (UserError, OSError, ValueError) as error:
        raise UserError(f"{error}; remove the folder {show_path(folder)}: it is made again from the data") from error
    return TokenStore(index, arrays, folder)


def _mapped(path: Path, kind: Kind) -> np.ndarray:
    if not path.stat().st_size:
        return np.empty(0, dtype=kind)  # an empty file cannot be mapped
    return np.memmap(path, dtype=kind, mode="r")
