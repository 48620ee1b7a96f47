"""A small training run by the command line, what is left of it when it is disturbed, and what it must end with."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from torture.children import Ended, Running, command, start
from training import tiny
from universal_transformer.cli import main
from universal_transformer.runs.journal import read_metrics

RECIPE = "copy"
SETTINGS = {
    "model.sizes.width": 16,
    "model.sizes.filter-width": 32,
    "model.sizes.num-heads": 2,
    "data.train-examples": 40,
    "data.validation-examples": 8,
    "data.test-examples": 2,
    "data.train-lengths": "1 8",
    "data.test-lengths": 10,
    "training.max-updates": 8,
    "training.minutes": None,
    "training.batch-tokens": 64,
    "training.save-minutes": 1e-9,
    "training.validate-every": 4,
    "training.average-checkpoints": 2,
    "training.log-every": 1,
    "training.threads": 1,
    "training.device": "cpu",
}
"""Dropout, Adam, validation and averages; a checkpoint before every update: this is the interval that may be lost."""


def import_all(folder: Path) -> None:
    """Make the small run once in this process, so that forked ones have all modules."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(SmallRun(folder).arguments)
    assert code == 0


def fields(changes: dict[str, object]) -> list[str]:
    """Return the fields of the small run as arguments."""
    return [part for name, value in (SETTINGS | changes).items() for part in (f"--{name}", *str(value).split())]


class SmallRun:
    """The run in `folder`/run, begun or continued by the command line."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.folder = folder / "run"
        self._begin = ["train", RECIPE, "--run", str(self.folder), "--quiet"]
        self._begin += fields({name.replace("__", ".").replace("_", "-"): value for name, value in changes.items()})

    @property
    def arguments(self) -> list[str]:
        """Return the command that a user gives: `--resume` if the folder has a run."""
        begun = (self.folder / "config.json").exists()
        return ["train", "--resume", str(self.folder), "--quiet"] if begun else self._begin

    def start(self, before: Callable[[], None] = lambda: None) -> Running:
        """Begin the run or continue it."""
        return start(self.arguments, before=before)

    def train(self, before: Callable[[], None] = lambda: None) -> Ended:
        """Begin the run or continue it, to its end."""
        return command(self.arguments, before=before)

    def losses(self) -> list[tuple[int, str, str]]:
        """Return update, loss and gradient norm of every update, to the last bit."""
        return tiny.losses(self.folder)

    def weights(self) -> str:
        """Return the SHA-256 of the weights of the model at the end."""
        return hashlib.sha256((self.folder / "model" / "model.safetensors").read_bytes()).hexdigest()

    def clear(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def last_update(self) -> int:
        """Return the last update that the metrics name; 0 without one."""
        path = self.folder / "metrics.jsonl"
        lines = read_metrics(path) if path.exists() and path.stat().st_size else []
        return max((line["update"] for line in lines if line["event"] == "update"), default=0)

    def resumed_after(self) -> int:
        """Return the update after which the last resume went on; 0 for a run that was begun again."""
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return max((line["update"] for line in lines if line["event"] == "resume"), default=0)


def differences(run: SmallRun, undisturbed: SmallRun) -> list[str]:
    """Return in what a run that was disturbed and went on differs from one that was not."""
    found = []
    if run.losses() != undisturbed.losses():
        found.append("other losses")
    if run.weights() != undisturbed.weights():
        found.append("other weights at the end")
    if left := [path.name for path in run.folder.rglob("*.partial")]:
        found.append(f"temporary files left: {left}")
    if warned := [path.name for path in (run.folder / "checkpoints").glob("damaged-*")]:
        found.append(f"damaged: {warned}")
    return found
