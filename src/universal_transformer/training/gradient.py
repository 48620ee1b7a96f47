"""The gradient of a batch, computed in one pass or in several, by one process or by several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from universal_transformer.axes import Scalar
from universal_transformer.evaluation.report import Side
from universal_transformer.models.model import Model
from universal_transformer.nn.trace import Trace
from universal_transformer.training import halting_schedule
from universal_transformer.training.batches import Part
from universal_transformer.training.config import TrainingConfig
from universal_transformer.training.counts import counts_of
from universal_transformer.training.objective import Loss, Precision, objective
from universal_transformer.training.processes import Processes
from universal_transformer.training.randomness import depth_of, seed_update
from universal_transformer.training.replica import Replica, exchanging
from universal_transformer.training.score_text import steps_name


@dataclass(frozen=True)
class Moment:
    """When an update is made."""

    update: int
    """Its number, from 1."""
    seconds: float
    """Seconds of training before it."""


def backward(
    model: Model,
    parts: Sequence[Part],
    *,
    call: nn.Module,
    training: TrainingConfig,
    moment: Moment,
    precision: Precision,
    processes: Processes,
) -> tuple[dict[str, Scalar], Mapping[Side, Trace]]:
    """Add the gradient of a batch to the parameters of `model`; return the figures of the batch by name, and traces.

    `parts` are those of this process, and `call` is the module to call (`training.replica`). The figures are sums over
    the parts, whose mean over processes is that of the batch, as that of the gradients is. The traces are those of the
    last part.

    Among several processes, random numbers are a function of seed, update and process: dropout and random positions
    depend on the number of processes.
    """
    if processes.size > 1:
        seed_update(training.seed, update=moment.update, rank=processes.rank)
    weight = halting_schedule.ponder_weight(training, update=moment.update, seconds=moment.seconds)
    whole = len(parts) == processes.size == 1
    counts = None if whole else counts_of(model, parts, processes=processes)
    found: dict[str, Scalar] = {}
    for part in parts:

        def loss_of(model: Model, part: Part = part) -> tuple[Scalar, Loss]:
            with precision():
                loss = objective(
                    model,
                    part.batch,
                    counts=counts,
                    label_smoothing=training.label_smoothing,
                    ponder_weight=weight,
                    max_steps=depth_of(training, update=moment.update, most=model.config.max_steps),
                    step_loss="stop" if training.stage == "halting" else training.step_loss,
                )
            total = loss.total if whole else part.weight * loss.total
            return total if type(call) is Replica and whole else total + _nothing(model), loss

        with exchanging(call, gradients=part is parts[-1]):
            total, loss = call(loss_of)
            torch.autograd.backward(total)
        for name, value in _figures(loss).items():
            found[name] = value if whole else found.get(name, 0.0) + part.weight * value
    return found, loss.traces


def _nothing(model: nn.Module) -> Scalar:
    """Return 0, with a gradient of 0 for every parameter: a replica waits for the gradients of all of them."""
    return sum((0.0 * each.sum() for each in model.parameters() if each.requires_grad), torch.zeros(()))


def _figures(loss: Loss) -> dict[str, Scalar]:
    steps = {steps_name(side): value for side, value in loss.steps.items()}
    parts = {name: getattr(loss, name) for name in ("cross_entropy", "ponder", "mean_steps")}
    return {"loss": loss.total.detach(), **parts, **steps}
