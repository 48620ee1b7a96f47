"""What the numbers of a run follow from: its configuration, data and surroundings, recorded in every checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from universal_transformer.data.example import Example
from universal_transformer.files import is_gzip, show_path
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.tasks.task import Task, file_fields
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import typed

CHUNK = 2**20


@dataclass(frozen=True)
class DataFile:
    """A file that the data of a run are read from."""

    path: str
    lines: int | None
    """Line feeds; None for a compressed file, whose line feeds mean nothing."""
    bytes: int
    sha256: str

    @classmethod
    def read(cls, path: Path) -> DataFile:
        """Return size and SHA-256 of a file."""
        digest, lines, size = hashlib.sha256(), 0, 0
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                lines, size = lines + chunk.count(b"\n"), size + len(chunk)
        return cls(path=str(path), lines=None if is_gzip(path) else lines, bytes=size, sha256=digest.hexdigest())

    def __str__(self) -> str:
        lines = f"{self.lines:,} lines and " if self.lines is not None else ""
        return f"{lines}{self.bytes:,} bytes"


@dataclass(frozen=True)
class RunOrigin:
    """What the numbers of a run follow from, apart from its code."""

    config: RunConfig
    data: str
    """Digest of its training and validation examples."""
    files: Mapping[str, DataFile]
    """The files they were read from, by field."""
    surroundings: Mapping[str, str | int]
    """Threads, version of torch and device: with others, the last bits of a loss may differ."""

    @classmethod
    def now(cls, config: RunConfig, task: Task, device: torch.device) -> RunOrigin:
        """Return what a run is made from here and now."""
        files = {name: DataFile.read(path) for name, path in file_fields(config.data).items() if path.is_file()}
        surroundings: dict[str, str | int] = {
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "device": device.type,
        }
        return cls(config, data_digest(task.train, task.validation), files, surroundings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        files = {name: dataclasses.asdict(file) for name, file in self.files.items()}
        return {**vars(self), "config": self.config.to_dict(), "files": files}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, where: str) -> RunOrigin:
        """Undo `to_dict`."""
        config = RunConfig.from_dict(fields["config"], name=where)
        return cls(
            config, fields["data"], typed(fields["files"], dict[str, DataFile], where=where), fields["surroundings"]
        )


def file_changes(before: Mapping[str, DataFile], now: Mapping[str, DataFile]) -> list[str]:
    """Return which files have another content than before, and by how many lines and bytes; moved ones are the same."""
    texts = []
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            texts.append(f"data.{name}: the file {show_path(old.path)} is missing")
        elif new.sha256 != old.sha256:
            how = f"had {old}, has {new} now" if str(old) != str(new) else f"has other content in {old}"
            texts.append(f"data.{name}: {show_path(new.path)} {how}")
    return texts + [f"data.{name}: {show_path(now[name].path)} is new" for name in now.keys() - before.keys()]


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
