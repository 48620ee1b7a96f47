"""``results/paper/TABLE.jsonl``: one JSON object a line for every finished run, appended whole or not at all.

A killed process can leave an incomplete last line: it is moved to ``TABLE.jsonl.damaged``, and its run is repeated.
Any other line that this version would not write is refused by name: no figure is made from it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.files import parse_json, show, show_path
from universal_transformer.models.components import ENCODERS
from universal_transformer.pretrained_models.card import Figures as Figures
from universal_transformer.training.config import RunConfig, digest
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
    """Whether the package's files were as committed."""
    finished: str
    """When, UTC."""
    notes: list[str]
    """What must be stated with every figure: incomplete data, a changed split."""
    warnings: list[str]
    command: str
    """The command that repeats the run."""
    settings: dict[str, Any]
    """The whole configuration of the run."""

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


ANOTHER = "move the file away to begin another"


class ResultsFile:
    """The lines of one table; every access holds the file's lock, so that several processes may append."""

    def __init__(self, path: Path, *, table: str, say: Say) -> None:
        self.path, self.table, self._say = path, table, say
        folder = path.parent
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{show_path(folder)}: a file; expected the folder that results are kept in")

    def check_folder(self) -> None:
        """UserError, before the work whose results it is to hold, if nothing can be written in the folder."""
        there = next(folder for folder in self.path.absolute().parents if folder.exists())
        if not os.access(there, os.W_OK):
            raise UserError(f"{show_path(there)}: cannot be written to; results are kept in {show_path(self.path)}")

    @property
    def damaged(self) -> Path:
        """The file of incomplete lines."""
        return self.path.with_name(f"{self.path.name}.damaged")

    def read(self) -> list[Result]:
        """Return all results; an incomplete last line is first moved to the file of damaged lines."""
        with self.held() as results:
            return results

    @contextmanager
    def held(self) -> Iterator[list[Result]]:
        """`read`, for as long as no other process adds a result."""
        if not self.path.exists():
            yield []
            return
        with self._locked() as file:
            yield self._read(file)

    def append(self, result: Result) -> bool:
        """Add a line and wait until the disk has it; False if another process has added that run meanwhile."""
        line = json.dumps(dataclasses.asdict(result), ensure_ascii=False, allow_nan=False) + "\n"
        check(json.loads(line), where="a new result", table=self.table)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as file:
            if result.key in {found.key for found in self._read(file)}:
                return False
            self._write(file, line.encode())
        return True

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise UserError(f"{show_path(self.path)}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)

    def _read(self, file: int) -> list[Result]:
        raw = os.pread(file, os.fstat(file).st_size, 0)
        lines = raw.removesuffix(b"\n").split(b"\n") if raw else []
        found: list[Result] = []
        for number, line in enumerate(lines, start=1):
            where = f"{show_path(self.path)}:{number}"
            fields = _object(line)
            if fields is None:
                if number < len(lines):
                    raise UserError(
                        f"{where}: not a result (found {show(line.decode(errors='replace'))}); "
                        "only a last line can be left half-written: repair or remove this one by hand"
                    )
                self._set_aside(file, raw, start=len(raw) - len(line) - raw.endswith(b"\n"), where=where)
            else:
                found.append(check(fields, where=where, table=self.table))
        if found and len(found) == len(lines) and not raw.endswith(b"\n"):
            self._write(file, b"\n")  # a whole line but for its end
        _refuse_doubles(found, name=show_path(self.path))
        return found

    def _set_aside(self, file: int, raw: bytes, *, start: int, where: str) -> None:
        with self.damaged.open("ab") as kept:
            kept.write(raw[start:].removesuffix(b"\n") + b"\n")
            kept.flush()
            os.fsync(kept.fileno())
        os.ftruncate(file, start)
        os.fsync(file)
        self._say(
            f"{where}: half-written or damaged, not trusted; moved to {show_path(self.damaged)}, "
            "and its run counts as not done"
        )

    def _write(self, file: int, data: bytes) -> None:
        """Append `data`, or leave the file unchanged."""
        size = os.fstat(file).st_size
        try:
            if os.write(file, data) != len(data):
                raise OSError(0, "could not be written whole (is the disk full?)")
            os.fsync(file)
        except OSError as error:
            os.ftruncate(file, size)
            raise UserError(f"{show_path(self.path)}: {error.strerror}") from error


def check(fields: dict[str, Any], *, where: str, table: str) -> Result:
    """Return the result with these fields; names, types and the digest of its settings must be exact."""
    if fields.get("format", FORMAT) != FORMAT:
        raise UserError(f"{where}: format: found {show(fields['format'])}; this version reads {FORMAT}")
    try:
        result: Result = typed(fields, Result, where=where)
    except UserError as error:
        raise UserError(f"{error}; this version does not read such a line: {ANOTHER}") from error
    if result.table != table:
        raise UserError(f"{where}: table: found {show(result.table)}; expected {table}")
    if digest(result.settings) != result.config:
        raise UserError(
            f"{where}: config: found {show(result.config)}, but its settings have the digest "
            f"{digest(result.settings)}: the line was changed"
        )
    _check_parts(result, where=where)
    try:
        config = RunConfig.from_dict(result.settings, name=f"{where}: settings")
    except UserError as error:  # a task or a field that this version does not have
        raise UserError(f"{error}; this version does not read such a line: {ANOTHER}") from error
    if config.training.seed != result.seed:
        raise UserError(f"{where}: seed: found {result.seed}, which is not the one in its settings")
    return result


def _check_parts(result: Result, *, where: str) -> None:
    """Refuse a line that lacks parts that its figures need."""

    def need(value: Any, name: str, *keys: str) -> None:
        if not isinstance(value, dict):
            raise UserError(f"{where}: {name}: found {show(value)}; expected an object")
        if missing := set(keys) - value.keys():
            raise UserError(f"{where}: {name}: {', '.join(sorted(missing))} missing")

    need(result.validation, "validation", "error", "cross_entropy")
    need(result.hardware, "hardware", "cpu", "threads")
    need(result.versions, "versions", "torch")
    if not result.figures:
        raise UserError(f"{where}: figures: there are none in it")
    for group, scores in result.figures.items():
        need(scores, f"figures.{group}", "count")
        if scores["count"] < 1:
            found = f"{scores['count']:g}"
            raise UserError(f"{where}: figures.{group}: count: found {found}; expected at least 1")


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `line`; None if there is none."""
    try:
        fields = parse_json(line.decode("utf-8"), where="")
    except (UserError, UnicodeDecodeError):
        return None
    return fields if isinstance(fields, dict) else None


def _refuse_doubles(found: Sequence[Result], *, name: str) -> None:
    seen: dict[Key, int] = {}
    for number, result in enumerate(found, start=1):
        first = seen.setdefault(result.key, number)
        if first != number:
            raise UserError(
                f"{name}:{number}: the run of line {first} again ({result.row}, seed {result.seed}, "
                f"config {result.config}): remove one of the two lines"
            )
