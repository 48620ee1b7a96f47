"""What a run shows and reports while it trains: a progress bar or plain lines, and lines of numbers."""

import errno
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from universal_transformer.axes import Tensor
from universal_transformer.evaluation.report import Side
from universal_transformer.files import printable

LINE_SECONDS = 10.0
BAR_SECONDS = 0.25

Value = float | int | str | bool | None
Tensors = Mapping[str, Tensor]


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


class Output(Console):
    """Standard output. When its reader closes it, training stops as on Ctrl-C: saved (rich would end the process)."""

    def on_broken_pipe(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGINT)

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the terminal is closed: SIGHUP says it too


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
        return f"{handled / seconds:,.0f} {self._unit}/s" if seconds > 0 else "…"

    def note(self, text: str) -> None:
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
    console = console or Output(quiet=quiet)
    return (ProgressBar if console.is_terminal and not quiet else Display)(console, unit=unit)


def summary(status: UpdateStatus) -> str:
    return " · ".join([f"loss {status.loss:.3f}", *steps_text(status.steps)])


def steps_text(steps: Mapping[Side, float]) -> list[str]:
    """Return the mean steps of encoder and decoder as a text; an empty list for a model without depth."""
    sides = [f"{side} {mean:.2f}" for side, mean in steps.items()]
    return [f"{' · '.join(sides)} steps"] if sides else []


def time_left(status: UpdateStatus) -> str:
    if status.fraction <= 0:
        return "time left unknown"
    left = round(status.seconds * (1 - status.fraction) / status.fraction)
    hours, minutes = divmod(left // 60, 60)
    return f"{hours}:{minutes:02}:{left % 60:02} left" if hours else f"{minutes}:{left % 60:02} left"
