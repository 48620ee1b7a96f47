"""Where a run reports its numbers to, besides metrics.jsonl, which stays the record.

A tracker is a class with the methods below, made from the folder of the run. `TRACKERS` has its name;
`examples/trackio_tracker.py` shows how to enter another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol, runtime_checkable

from universal_transformer.errors import UserError, optional, suggestion
from universal_transformer.typed import listed


@runtime_checkable
class Tracker(Protocol):
    """Receives the numbers of a run in order."""

    def start(self, config: Mapping[str, Any], *, after: int) -> None:
        """The run begins, or goes on after an update: numbers of later updates will come again."""

    def log(self, values: Mapping[str, float], *, update: int) -> None:
        """Numbers of an update or of a validation, named as ``update/loss``."""

    def finish(self) -> None:
        """The run has ended or was interrupted."""


TRACKERS: dict[str, str] = {"tensorboard": "universal_transformer.runs.trackers:TensorBoard"}
"""Name of a tracker -> ``module:class``."""


class TensorBoard:
    """Files for TensorBoard in the folder ``tensorboard`` of the run."""

    def __init__(self, folder: Path) -> None:
        optional("tensorboard", needed="training.tracker: TensorBoard is not installed", extra="tensorboard")
        self.folder = folder / "tensorboard"

    def start(self, config: Mapping[str, Any], *, after: int) -> None:
        """Points from ``after + 1`` on are deleted."""
        del config
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(self.folder, purge_step=after + 1)

    def log(self, values: Mapping[str, float], *, update: int) -> None:
        for name, value in values.items():
            self.board.add_scalar(name, value, update)

    def finish(self) -> None:
        self.board.close()


def tracker_of(name: str | None, folder: Path) -> Tracker | None:
    """The tracker of this name for the run in ``folder``; UserError for an unknown name or a missing package."""
    if name is None:
        return None
    if name not in TRACKERS:
        raise UserError(f"training.tracker={name!r}: known are {listed(TRACKERS)}{suggestion(name, TRACKERS)}")
    kind: type[Any] = resolve_name(TRACKERS[name])
    made: Tracker = kind(folder)
    return made
