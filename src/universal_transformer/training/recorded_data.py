"""What a run records of its data, so that a resume can say that they have changed, and which file has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from universal_transformer.data.example import Example
from universal_transformer.files import is_gzip, show_path
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.tasks.task import TaskData, file_fields
from universal_transformer.typed import NumberOf

CHUNK = 2**20


@dataclass(frozen=True)
class DataFile:
    """A file that the data of a run are read from."""

    path: str
    lines: NumberOf
    """Line feeds; 0 for a compressed file, whose line feeds mean nothing."""
    bytes: NumberOf
    sha256: str


def data_files(data: TaskData) -> dict[str, Path]:
    """Return the fields of a task's data that name an existing file, with its path."""
    return {name: path for name, path in file_fields(data).items() if path.is_file()}


def read_data_file(path: Path) -> DataFile:
    """Return size and SHA-256 of a file."""
    digest, lines, size = hashlib.sha256(), 0, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            lines, size = lines + chunk.count(b"\n"), size + len(chunk)
    lines = 0 if is_gzip(path) else lines
    return DataFile(path=str(path), lines=lines, bytes=size, sha256=digest.hexdigest())


def file_changes(before: Mapping[str, DataFile], now: Mapping[str, DataFile]) -> list[str]:
    """Return which files have another content than before, and by how many lines and bytes; moved ones are the same."""
    found = []
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            found.append(f"data.{name}: the file {show_path(old.path)} is missing")
        elif new.sha256 != old.sha256:
            sizes = [f"{one.lines:,} lines and {one.bytes:,} bytes" for one in (old, new)]
            how = f"had {sizes[0]}, has {sizes[1]} now" if sizes[0] != sizes[1] else f"has other content in {sizes[0]}"
            found.append(f"data.{name}: {show_path(new.path)} {how}")
    return found + [f"data.{name}: {show_path(now[name].path)} is new" for name in now.keys() - before.keys()]


def data_digest(*sets: Sequence[Example]) -> str:
    """Return 12 hexadecimal digits that change with any id of any example."""
    digest = hashlib.sha256()
    for examples in sets:
        digest.update(f"{len(examples)} examples\n".encode())
        if isinstance(examples, MappedExamples):
            digest.update(examples.digest.encode())
            continue
        for example in examples:
            for side in (example.source, example.target):
                if isinstance(side, np.ndarray):
                    digest.update(f"{side.shape}".encode() + side.tobytes())
                else:
                    digest.update(f"{side}".encode())
    return digest.hexdigest()[:12]
