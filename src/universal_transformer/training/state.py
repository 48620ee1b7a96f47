"""The state of a run between two updates, and the check of all of it before any of it is used.

A checkpoint can agree with its manifest and still be wrong: edited by hand, or written by another program. Each value
is checked for its type and range, and each tensor for its name, shape, type and finiteness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from universal_transformer.errors import UserError
from universal_transformer.evaluation.report import Side
from universal_transformer.files import show
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.training.averages import by_validation
from universal_transformer.training.checkpoint import STATE, Checkpoint, Tensors, check_weights
from universal_transformer.training.collapse_watch import CollapseWatch
from universal_transformer.training.config import RunConfig, digest
from universal_transformer.training.optimizer import check_optimizer
from universal_transformer.training.outliers import WATCHED, WINDOW, OutlierWatch
from universal_transformer.training.randomness import check_random_states
from universal_transformer.training.recorded_data import DataFile
from universal_transformer.training.validation import SIDES, Score
from universal_transformer.typed import NonNegative, NumberOf, Range, check_names, typed

AVERAGED = ("loss", "cross_entropy", "ponder", "mean_steps", "gradient_norm")
"""Values of an update whose means a line of metrics states."""
SUMMED = {*AVERAGED, "updates", "examples", "targets", "seconds"}
"""Names in `RunState.window`; the steps of each side are added to them."""
PARTS = {"model", "optimizer", "random", "best", "averaged"}
"""Files of tensors of a checkpoint, without .safetensors."""
OPTIONAL = {"ema"}
"""The running mean of the weights, of a run that has one."""
FORMAT = 1
"""Version of state.json."""


@dataclass
class RunState:
    """Every scalar of a run that its next update, validation or line of metrics depends on."""

    update: NumberOf = 0
    epoch: NumberOf = 0
    batch: NumberOf = 0
    """Batches of the epoch that are finished."""
    examples: NumberOf = 0
    targets: NumberOf = 0
    seconds: NonNegative = 0.0
    saves: NumberOf = 0
    validated: NumberOf = 0
    """Update of the last validation."""
    best: Score | None = None
    best_update: NumberOf = 0
    stale: NumberOf = 0
    """Validations since the last improvement."""
    window: dict[str, float] = field(default_factory=dict)
    """Sums since the last line of metrics."""
    collapse: dict[Side, CollapseWatch] = field(default_factory=lambda: {side: CollapseWatch() for side in SIDES})
    outliers: OutlierWatch = field(default_factory=OutlierWatch)

    @classmethod
    def from_dict(cls, fields: Any, *, where: str) -> RunState:
        """Undo `dataclasses.asdict`; anything that it did not write is a UserError at `where`."""
        known = {one.name for one in dataclasses.fields(cls)}
        check_names(fields, expected=known, where=where)
        state: RunState = typed(fields, cls, where=where)
        check_names(state.collapse, expected=set(SIDES), where=where, field="collapse")
        if state.window:
            steps = {f"{side}_steps" for side in SIDES}
            check_names(state.window, expected=SUMMED, optional=steps, where=where, field="window")
            typed(state.window["updates"], Annotated[float, Range(1)], where=where, field="window.updates")
        if recent := state.outliers.recent:
            check_names(recent, expected=set(WATCHED), where=where, field="outliers.recent")
            if any(len(values) > WINDOW for values in recent.values()):
                raise UserError(f"{where}: outliers.recent: more than {WINDOW} values")
        for name in ("epoch", "batch", "validated", "best_update", "stale"):
            typed(getattr(state, name), Annotated[int, Range(0, state.update)], where=where, field=name)
        return state


@dataclass(frozen=True)
class Snapshot:
    """All that a run continues from: what a checkpoint holds, with the type of each value."""

    state: RunState
    config: RunConfig
    digest: str
    """`RunConfig.digest` of the run that saved it."""
    data: str
    """Digest of its training and validation examples."""
    files: Mapping[str, DataFile]
    """The files they were read from, by field."""
    surroundings: Mapping[str, str | int]
    """Threads, version of torch and device: with others, the last bits of a loss may differ."""
    tensors: Mapping[str, Tensors]

    @property
    def name(self) -> str:
        """Return the name of its checkpoint."""
        return f"{self.state.update:09d}-{self.state.saves:06d}"

    def checkpoint(self) -> Checkpoint:
        """Return it as tensors and plain JSON."""
        fields = {
            "format": FORMAT,
            "standing": dataclasses.asdict(self.state),
            "config": self.digest,
            "configuration": self.config.to_dict(),
            "data": self.data,
            "files": {name: dataclasses.asdict(file) for name, file in self.files.items()},
            "surroundings": dict(self.surroundings),
            "tensors": {part: len(found) for part, found in self.tensors.items()},
        }
        return Checkpoint(tensors=self.tensors, state=fields)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, *, name: str) -> Snapshot:
        """Undo `checkpoint`; a UserError says what is wrong in the checkpoint of this name."""
        fields = dict(checkpoint.state)
        names = {"format", "standing", "config", "configuration", "data", "files", "surroundings", "tensors"}
        check_names(fields, expected=names, where=STATE)
        if (found := typed(fields["format"], int, where=STATE, field="format")) != FORMAT:
            raise UserError(f"{STATE}: format {found}, this version reads {FORMAT}")
        check_names(dict(checkpoint.tensors), expected=PARTS, optional=OPTIONAL, where="files of tensors")
        check_names(fields["surroundings"], expected={"threads", "torch", "device"}, where=STATE, field="surroundings")
        snapshot = cls(
            state=RunState.from_dict(fields["standing"], where=f"{STATE}: standing"),
            config=RunConfig.from_dict(fields["configuration"], name=f"{STATE}: configuration"),
            digest=typed(fields["config"], str, where=STATE, field="config"),
            data=typed(fields["data"], str, where=STATE, field="data"),
            files=typed(fields["files"], dict[str, DataFile], where=STATE, field="files"),
            surroundings=typed(fields["surroundings"], dict[str, int | str], where=STATE, field="surroundings"),
            tensors=checkpoint.tensors,
        )
        counts = {part: len(tensors) for part, tensors in checkpoint.tensors.items()}
        if fields["tensors"] != counts:
            raise UserError(f"{STATE}: tensors: {show(fields['tensors'])}, the files have {counts}")
        if digest(fields["configuration"]) != snapshot.digest:
            raise UserError(f"{STATE}: config: {show(snapshot.digest)} is not the digest of the configuration in it")
        if (snapshot.state.best is None) != (not snapshot.tensors["best"]):
            raise UserError("best: weights without a score, or a score without weights")
        if snapshot.name != name:
            raise UserError(f"{STATE}: this is the state of {snapshot.name}")
        return snapshot

    def check_tensors(self, model: Pretrained) -> None:
        """UserError for a tensor that is missing, unknown, not finite, or not of the shape and type of the model's."""
        check_weights(model, self.tensors["model"], where="model")
        check_optimizer(model, self.tensors["optimizer"])
        check_random_states(self.tensors["random"])
        if (self.state.update == 0) != (not self.tensors["optimizer"]):
            raise UserError("optimizer: a state before the first update, or none after it")
        if self.tensors["best"]:
            check_weights(model, self.tensors["best"], where="best")
        if self.tensors.get("ema"):
            check_weights(model, self.tensors["ema"], where="ema")
        if self.config is not None and bool(self.config.training.ema_decay) != ("ema" in self.tensors):
            raise UserError("ema: a running mean that training.ema_decay does not ask for, or none where it does")
        if "ema" in self.tensors and (self.state.update == 0) != (not self.tensors["ema"]):
            raise UserError("ema: a running mean before the first update, or none after it")
        averaged = by_validation(self.tensors["averaged"])
        if set(averaged) != {str(index) for index in range(len(averaged))}:
            raise UserError(f"averaged: weights numbered {show(sorted(averaged))}; expected 0, 1, …")
        for index, weights in averaged.items():
            check_weights(model, weights, where=f"averaged {index}")


def first_non_finite(tensors: Mapping[str, Tensors]) -> str | None:
    """Return the name of a tensor that has an infinite number or NaN; None if there is none."""
    for part, found in tensors.items():
        for name, tensor in found.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                return f"{part}: {name}"
    return None
