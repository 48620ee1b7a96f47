"""The output of a run in progress: metrics.jsonl, TensorBoard files, a progress bar or plain lines."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from universal_transformer.errors import UserError
from universal_transformer.evaluation.report import Side
from universal_transformer.files import (
    open_regular,
    parse_json,
    printable,
    refuse_special,
    show,
    show_path,
    try_lines,
    write_text,
)
from universal_transformer.training.config import METRICS, MODEL
from universal_transformer.typed import Count, NonNegative, typed

LINE_SECONDS = 10.0
BAR_SECONDS = 0.25

Value = float | int | str | bool | None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl. The last line may be incomplete (of a killed run); it is left out then.

    UserError, naming the line, for anything else that `Metrics` does not write.
    """
    refuse_special(path)
    lines: list[dict[str, Any]] = []
    incomplete: UserError | None = None
    for number, text in try_lines(path) if path.stat().st_size else ():
        if incomplete is not None:
            raise incomplete
        try:
            lines.append(_metrics_line(text, where=f"{show_path(path)}:{number}"))
        except UserError as error:
            if isinstance(text, UserError) or not text.startswith("{") or text.endswith("}"):
                raise
            incomplete = error
    return lines


def _metrics_line(text: str | UserError, *, where: str) -> dict[str, Any]:
    if isinstance(text, UserError):
        raise text
    line = parse_json(text, where=where)
    if not isinstance(line, dict):
        raise UserError(f"{where}: found {show(line)}; expected a JSON object, as training writes it")
    for name, hint in (("event", str), ("update", Count), ("seconds", NonNegative)):
        if name not in line:
            raise UserError(f'{where}: no "{name}" in {show(line)}; expected a line as training writes it')
        typed(line[name], hint, where=where, field=name)
    for name, value in line.items():
        if type(value) is int:
            typed(value, float, where=where, field=name)  # a figure takes no number of hundreds of digits
    return line


def ending(folder: Path) -> dict[str, Any] | None:
    """Return the last line of the metrics of a finished run in `folder`; None if it is not finished."""
    if not (folder / METRICS).is_file() or not (folder / MODEL).is_dir():
        return None
    lines = read_metrics(folder / METRICS)
    ended = bool(lines) and lines[-1]["event"] == "end" and lines[-1].get("stopped") != "interrupted"
    return lines[-1] if ended else None


class Metrics:
    """metrics.jsonl: one JSON object a line with event, update, seconds and values, on disk line by line."""

    def __init__(self, path: Path, *, after: int | None = None) -> None:
        """Continue after update `after`, without the later lines of a killed run; None starts a new file."""
        if after is not None and path.exists():
            kept = [line for line in read_metrics(path) if line["update"] <= after]
            if after and not kept:
                raise UserError(
                    f"{show_path(path)}: no line up to update {after} of this run; move the file away to begin another"
                )
            write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._file = os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)

    def write(self, event: str, *, update: int, seconds: float, values: Mapping[str, Value]) -> None:
        """Append one line, without values that are not finite: JSON cannot represent them."""
        numbers = {
            name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)
        }
        line = {"event": event, "update": update, "seconds": round(seconds, 3), **numbers}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")

    def sync(self) -> None:
        """Wait until every line is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """The numbers of updates and validations as TensorBoard scalars, in `folder`."""

    def __init__(self, folder: Path, *, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # points from purge_step on are deleted; the point of update `after` is kept
        self._writer = SummaryWriter(folder, purge_step=after + 1)

    def write(self, event: str, *, update: int, values: Mapping[str, Value]) -> None:
        """Add one point to each curve."""
        for name, value in values.items():
            if isinstance(value, float | int):
                self._writer.add_scalar(f"{event}/{name}", value, update)

    def close(self) -> None:
        """Write the remaining points and close."""
        self._writer.close()


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """What a display shows of one update."""

    update: int
    seconds: float
    fraction: float
    loss: float
    steps: Mapping[Side, float]
    handled: int
    """Examples (or target tokens) that training has used."""


class Display:
    """Shows the progress of a run: a plain line every ten seconds, for pipes and log files."""

    def __init__(self, console: Console, *, unit: str) -> None:
        self._console, self._unit = console, unit
        self._first: UpdateStatus | None = None
        self._due = time.monotonic() + 1.0

    def show(self, status: UpdateStatus) -> None:
        """Print a line if the last one is ten seconds old."""
        self._first = self._first or status
        if (now := time.monotonic()) < self._due:
            return
        self._due = now + LINE_SECONDS
        self.note(
            f"update {status.update} · {status.fraction:.0%} · {summary(status)} · {self._rate(status)} · "
            f"{time_left(status)}"
        )

    def _rate(self, status: UpdateStatus) -> str:
        """Return the mean rate since the first status; the time before it (compilation, loading) does not count."""
        assert self._first is not None
        seconds, handled = status.seconds - self._first.seconds, status.handled - self._first.handled
        return f"{handled / seconds if seconds > 0 else 0.0:,.0f} {self._unit}/s"

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Stop showing progress."""


class ProgressBar(Display):
    """A progress bar with loss, mean steps, rate and time left, for a terminal."""

    def __init__(self, console: Console, *, unit: str) -> None:
        super().__init__(console, unit=unit)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]}"),
            console=console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("starting", total=1.0, rate="", left="")
        self._progress.start()

    def show(self, status: UpdateStatus) -> None:
        """Redraw the bar if it is a quarter of a second old."""
        self._first = self._first or status
        if (now := time.monotonic()) < self._due and status.fraction < 1:
            return
        self._due = now + BAR_SECONDS
        self._progress.update(
            self._task,
            completed=status.fraction,
            description=summary(status),
            rate=self._rate(status),
            left=time_left(status),
            refresh=True,
        )

    def close(self) -> None:
        """Stop drawing, and release the terminal."""
        self._progress.stop()


def display(*, quiet: bool, unit: str, console: Console | None = None) -> Display:
    """Return a bar on a terminal, plain lines elsewhere, nothing if `quiet`."""
    console = console or Console(quiet=quiet)
    return (ProgressBar if console.is_terminal and not quiet else Display)(console, unit=unit)


def summary(status: UpdateStatus) -> str:
    """Return loss and mean steps (of a model with depth) as text."""
    return " · ".join([f"loss {status.loss:.3f}", *steps_text(status.steps)])


def steps_text(steps: Mapping[Side, float]) -> list[str]:
    """Return the mean steps of encoder and decoder as a text; an empty list for a model without depth."""
    sides = [f"{side} {mean:.2f}" for side, mean in steps.items()]
    return [f"{' · '.join(sides)} steps"] if sides else []


def time_left(status: UpdateStatus) -> str:
    """Return the time left as text, from the finished part of the run."""
    if status.fraction <= 0:
        return "time left unknown"
    left = round(status.seconds * (1 - status.fraction) / status.fraction)
    hours, minutes = divmod(left // 60, 60)
    return f"{hours}:{minutes:02}:{left % 60:02} left" if hours else f"{minutes}:{left % 60:02} left"
