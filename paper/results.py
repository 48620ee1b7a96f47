"""``results/paper/TABLE.jsonl``: one JSON object a line for every finished run.

A killed process can leave an incomplete last line, which does not count: its run is repeated.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.files import parse_json, show_path
from universal_transformer.models.components import ENCODERS
from universal_transformer.pretrained_models.card import Figures as Figures
from universal_transformer.training.run_config import digest
from universal_transformer.typed import typed

FORMAT = 1

Say = Callable[[str], None]
Key = tuple[str, int, str]
"""Row, seed and digest of the configuration of a run: two lines with the same key are the same run."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run: its figures, and all that they depend on."""

    format: int = FORMAT
    """Version of these fields."""
    table: str
    row: str
    """Name of the row in the table's list of rows."""
    seed: int
    config: str
    """Digest of `settings`."""
    figures: Figures
    """Group of the test set (a task, a length), or test set -> its scores, "count" (examples) and "mean_steps"."""
    validation: dict[str, float]
    """The scores that the weights were chosen by: "error" in per cent, "cross_entropy" in nats."""
    mean_steps: float
    """Mean ponder time over all test positions (of a fixed model: its depth)."""
    steps_by_supports: dict[str, list[int]]
    """Number of supporting facts -> how many source positions took 1, 2, 3 … steps."""
    steps: dict[str, list[int]]
    """Side -> how many of its positions took 1, 2, 3 … steps, over all test sets; empty where none were recorded."""
    examples: dict[str, int]
    """Examples in "train", "validation" and "test"."""
    parameters: int
    updates: int
    seconds: float
    """Time trained, validations included, over all resumes."""
    resumes: int
    """How often the run was interrupted and continued."""
    stopped: str
    chosen: str
    """Which weights were kept: best, last or average."""
    hardware: dict[str, str | int]
    versions: dict[str, str]
    commit: str | None
    clean: bool | None
    """Whether the files of the package and of `paper/` were as committed (before commit 188b0131: of the package)."""
    finished: str
    """When, UTC."""
    notes: list[str]
    """What must be stated with every figure: incomplete data, a changed split."""
    warnings: list[str]
    command: str
    """The command that repeats the run."""
    settings: dict[str, Any]
    """The whole configuration of the run."""
    curve: list[list[float]]
    """Each validation during training: updates, cross-entropy in nats, error in per cent; empty of runs recorded before
    it was kept. Of the running mean of the weights where the run has one (before commit 82073ad2: of the weights)."""

    @property
    def key(self) -> Key:
        """The identity of the run."""
        return self.row, self.seed, self.config

    @property
    def setting(self) -> str:
        """Digest of the settings without the seed: runs that share it differ only in the seed."""
        return digest({**self.settings, "training": {**self.settings["training"], "seed": 0}})

    @property
    def classes(self) -> bool:
        """Whether it chose its weights as classifiers and taggers do: by error before cross-entropy."""
        return self.settings["model"].get("architecture") in ENCODERS

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better, on validation, as training ranks weights."""
        error, cross_entropy = self.validation["error"], self.validation["cross_entropy"]
        return (error, cross_entropy) if self.classes else (cross_entropy, error)


class ResultsFile:
    """The lines of one table. Several processes of one machine may append."""

    def __init__(self, path: Path, *, table: str, say: Say) -> None:
        self.path, self.table, self._say = path, table, say

    def check_folder(self) -> None:
        """UserError, before the work whose results it is to hold, if nothing can be written in the folder."""
        there = next(folder for folder in self.path.absolute().parents if folder.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise UserError(f"{show_path(there)}: cannot be written to; results are kept in {show_path(self.path)}")

    def read(self) -> list[Result]:
        """Return all results."""
        whole, rest = self._parts(self.path.read_bytes() if self.path.is_file() else b"")
        if rest:
            self._say(f"{show_path(self.path)}: its last line is half-written: that run counts as not done")
        return self._results(whole)

    def append(self, result: Result) -> bool:
        """Add a line and wait until the disk has it; False if another process has added that run meanwhile."""
        line = json.dumps(dataclasses.asdict(result), ensure_ascii=False, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            whole, _ = self._parts(file.read())
            if result.key in {recorded.key for recorded in self._results(whole)}:
                return False
            file.truncate(len(whole))
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        return True

    @staticmethod
    def _parts(content: bytes) -> tuple[bytes, bytes]:
        """Return the whole lines, and what a killed process left of the last one."""
        end = content.rfind(b"\n") + 1
        return content[:end], content[end:]

    def _results(self, lines: bytes) -> list[Result]:
        found: list[Result] = []
        for number, line in enumerate(lines.splitlines(), start=1):
            where = f"{show_path(self.path)}:{number}"
            result: Result = typed(parse_json(line.decode("utf-8", errors="replace"), where=where), Result, where=where)
            if result.table != self.table:
                raise UserError(f"{where}: a result of {result.table}; expected {self.table}")
            found.append(result)
        return found
