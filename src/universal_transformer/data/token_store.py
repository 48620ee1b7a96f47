"""Arrays of whole numbers in files that are mapped into memory, made once and then opened by every run.

A store is a folder: a file of plain numbers for each array, other files (a tokenizer), and ``index.json`` with the type
and length of each array, the SHA-256 of each file, and that of the index itself. It is written under another name
and renamed when it is whole. Nothing of it is read without these checks.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np

from universal_transformer.data.download import sha256
from universal_transformer.errors import UserError
from universal_transformer.files import open_regular, read_json, show, show_path, sync_folder, write_json
from universal_transformer.typed import NumberOf, check_names, typed

FORMAT = 1
INDEX = "index.json"
LOCK = "lock"
KEPT = 3
"""Stores of one source that are kept, those used last: with other tokenizers, or of earlier content."""
Kind = Literal["uint8", "uint16", "int32", "int64"]


@dataclass(frozen=True)
class StoredArray:
    """The type and the length of an array."""

    kind: Kind
    count: NumberOf


@dataclass(frozen=True)
class StoreIndex:
    """The content of ``index.json``."""

    format: int
    arrays: dict[str, StoredArray]
    files: dict[str, str]
    """SHA-256 of every file but the index, by name."""
    notes: tuple[str, ...]
    held_out: dict[str, list[dict[str, str | list[str]]]]
    """Rows that are in no array, by part."""


@dataclass(frozen=True)
class TokenStore:
    """An opened store; its arrays are mapped, and read from disk as they are used."""

    folder: Path
    index: StoreIndex
    arrays: Mapping[str, np.ndarray]

    @property
    def digest(self) -> str:
        """A text that changes with any number of any array."""
        return " ".join(f"{name} {self.index.files[name]}" for name in sorted(self.arrays))


@dataclass
class StoreWriter:
    """Writes the files of a store. Arrays grow by `append`; other files may be written into `folder`."""

    folder: Path
    notes: list[str] = field(default_factory=list)
    held_out: dict[str, list[dict[str, str | list[str]]]] = field(default_factory=dict)
    _arrays: dict[str, StoredArray] = field(default_factory=dict)
    _files: dict[str, BinaryIO] = field(default_factory=dict)

    def append(self, name: str, values: np.ndarray, *, kind: Kind) -> None:
        """Add numbers to the end of an array."""
        if name not in self._files:
            self._files[name] = (self.folder / name).open("wb")
            self._arrays[name] = StoredArray(kind, 0)
        self._files[name].write(values.astype(kind).tobytes())
        self._arrays[name] = StoredArray(kind, self._arrays[name].count + len(values))

    def finish(self) -> None:
        """Write the index; every file is on the disk afterwards."""
        self.close()
        files = {path.name: _sync(path) for path in sorted(self.folder.iterdir())}
        content = StoreIndex(FORMAT, self._arrays, files, tuple(self.notes), self.held_out)
        write_json(self.folder / INDEX, {"sha256": _content_digest(asdict(content)), "content": asdict(content)})

    def close(self) -> None:
        """Close all files."""
        with ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)


def smallest_kind(size: int) -> Kind:
    """Return the smallest type of ids from 0 to `size` - 1."""
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
        with _locked(parent / LOCK):
            if not folder.exists():
                _make(folder, make)
                _remove_others(folder)
            os.utime(folder)
    except OSError as error:
        raise UserError(
            f"{show_path(error.filename or folder)}: {error.strerror or error}; tokens of large data are written below "
            "the data folder: --data-dir or UT_DATA names another"
        ) from error
    return open_store(folder)


def _make(folder: Path, make: Callable[[StoreWriter], None]) -> None:
    for left in folder.parent.glob(".*.partial"):  # of a killed process: the lock is ours
        shutil.rmtree(left)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    writer = StoreWriter(staging)
    try:
        make(writer)
        writer.finish()
        staging.rename(folder)
    except BaseException:
        writer.close()
        shutil.rmtree(staging, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def _remove_others(folder: Path) -> None:
    stores = [path.parent for path in folder.parent.glob(f"*/{INDEX}") if path.parent != folder]
    for old in sorted(stores, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT - 1 :]:
        shutil.rmtree(old)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def open_store(folder: Path) -> TokenStore:
    """Map the arrays of a store after every check; anything that `StoreWriter` did not write is a UserError."""
    try:
        index = _read_index(folder / INDEX)
        for name, digest in index.files.items():
            if Path(name).name != name or not (path := folder / name).is_file() or path.is_symlink():
                raise UserError(f"{show_path(folder)}: {show(name)} is missing, or no regular file")
            if sha256(path) != digest:
                raise UserError(f"{show_path(path)}: other content than was written")
        if strange := index.arrays.keys() - index.files.keys():
            raise UserError(f"{show_path(folder)}: {show(min(strange))} is an array without a file")
        arrays = {name: _mapped(folder / name, array) for name, array in index.arrays.items()}
    except UserError as error:
        raise UserError(f"{error}; remove the folder {show_path(folder)}: it is made again from the data") from error
    return TokenStore(folder, index, arrays)


def _read_index(path: Path) -> StoreIndex:
    name = show_path(path)
    fields = read_json(path)
    check_names(fields, expected={"sha256", "content"}, where=name)
    if not isinstance(fields["content"], dict) or fields["sha256"] != _content_digest(fields["content"]):
        raise UserError(f"{name}: other content than was written")
    index: StoreIndex = typed(fields["content"], StoreIndex, where=name)
    if index.format != FORMAT:
        raise UserError(f"{name}: format {index.format}, this version reads {FORMAT}")
    return index


def _mapped(path: Path, array: StoredArray) -> np.ndarray:
    if path.stat().st_size != array.count * np.dtype(array.kind).itemsize:
        raise UserError(f"{show_path(path)}: {path.stat().st_size} bytes; expected {array.count} numbers {array.kind}")
    if not array.count:
        return np.empty(0, dtype=array.kind)  # an empty file cannot be mapped
    return np.memmap(path, dtype=array.kind, mode="r", shape=(array.count,))


def _content_digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> str:
    """Wait until the disk has a file; return its SHA-256."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return sha256(path)
