"""When halting units are trained: from the first update, after a delay, or alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from universal_transformer.models.model import Model
from universal_transformer.nn.halting import ACT
from universal_transformer.training.optimizer import fraction_done
from universal_transformer.training.run_config import TrainingConfig


def halting_delayed(config: TrainingConfig, *, update: int, seconds: float) -> bool:
    """Return whether update `update`, which counts from 1, is one of those before halting is trained."""
    return fraction_done(config, update=update - 1, seconds=seconds) < config.halting_delay


def ponder_weight(config: TrainingConfig, *, update: int, seconds: float) -> float:
    """Return the weight of the ponder cost at update `update`.

    It rises over `ponder_warmup_updates`, and is 0 before halting is trained.
    """
    if halting_delayed(config, update=update, seconds=seconds):
        return 0.0
    return config.ponder_weight * min(1.0, update / max(1, config.ponder_warmup_updates))


def decides(model: Model, config: TrainingConfig) -> bool:
    """Return whether the steps of an update are those that halting decided on, of the same cap as in other updates.

    At random depth the cap differs from update to update. Where the unit is fitted alone, and where the loss is an
    expectation over steps (rule ponder), all positions make all steps.
    """
    return config.stage == "all" and config.depth == "fixed" and not model.config.expects_loss


@torch.no_grad()
def prepare_units(model: nn.Module, config: TrainingConfig) -> None:
    """Let units that are trained later or alone begin with weights of 0: ``p = sigmoid(b)`` at all positions and steps.

    The bias b is the initial one of the configuration, also where the weights of another run were taken over.

    With random initial weights, states that grow over depth would give each position a random depth. Where units are
    trained alone, no gradient reaches other weights.
    """
    alone = config.stage == "halting"
    if alone:
        model.requires_grad_(False)
    for unit in _units(model) if alone or config.halting_delay else ():
        unit.requires_grad_(True)
        unit.weight.zero_()
        unit.bias.fill_(unit.first_bias)


def discard_gradients(model: nn.Module) -> None:
    """Delete the gradients of halting units, so that the next update does not change them."""
    for unit in _units(model):
        unit.zero_grad(set_to_none=True)


def _units(model: nn.Module) -> Iterator[ACT]:
    return (module for module in model.modules() if isinstance(module, ACT))
