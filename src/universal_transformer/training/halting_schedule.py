"""When halting units are trained: from the first update, after a delay, or alone in a second stage.

The second stage keeps all other weights of a model that was trained at a fixed or random depth. It fits the unit, in
minutes, to the step after which no later one predicts better (`objective.stop_loss`; the two stages are those of
Ouro, arXiv 2510.25741). The output is the last state (D8): the model computes the same as before where no position
stops. The output of one that was trained with ACT was the weighted mean of its states.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from universal_transformer.errors import UserError, refuse
from universal_transformer.files import read_json, show_path
from universal_transformer.manifest import MODEL
from universal_transformer.models.model_config import ModelConfig, config_from_dict
from universal_transformer.nn.halting import ACT
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.rules import choices_of
from universal_transformer.training.optimizer import fraction_done
from universal_transformer.training.run_config import AnyModelConfig, RunConfig, TrainingConfig
from universal_transformer.training.warm_start import warm_start_of
from universal_transformer.typed import listed, replaced

UPDATES = 300
"""Updates of a second stage."""
FITTED = (
    "model.halting.quantile",
    "model.halting.bias",
    "model.depth.",
    "model.execution.",
    "model.generation.",
)
"""Fields of the model that a second stage can change, or what they begin with."""
WITHOUT_EFFECT = (
    *("depth", "step_loss", "ponder_weight", "ponder_warmup_updates", "halting_delay", "label_smoothing"),
    "patience",
)
"""Fields of the training that its loss does not have, and the end that it does not have: it makes all its updates."""
OTHERWISE_CHOSEN = ("minutes", "weight_decay", "average_checkpoints", "ema_decay")
"""Fields of the training that are as by default in a second stage, unless they are given."""
SAME_STEPS = "all positions of this model take as many steps, so that there is nothing to decide"


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


def second_stage(config: RunConfig, run: Path) -> RunConfig:
    """Return the configuration of the second stage of the run in a folder, which has a trained model.

    UserError for a model that cannot have one.
    """
    path = run / MODEL / "config.json"
    trained = config_from_dict(read_json(path), where=show_path(path))
    return dataclasses.replace(
        config,
        model=halting_model(trained, run=run),
        training=halting_training(config.training),
        warm_start=warm_start_of(run),
    )


def changed_second_stage(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a second stage with changes, which are values by the names of their fields.

    UserError for changes that it cannot fit, or that have no effect on it.
    """
    unused = {f"training.{field}" for field in WITHOUT_EFFECT}
    fitted = listed([f"{field}*" if field.endswith(".") else field for field in FITTED])
    for name in changes:
        of_model = name.startswith("model.") and not name.startswith(FITTED)
        refuse(
            (of_model, f"{name}: the model is that of the run; it can change in {fitted}"),
            (name in unused, f"{name}: without effect on a second stage; leave it out"),
            at="--stage halting",
        )
    config = replaced(config, changes)
    assert isinstance(config.model, ModelConfig)
    scaled = "the residual scale of step.norm=deep follows from it, so that the weights would be those of another model"
    caps = [cap for cap in ("model.depth.decoder_max_steps", "model.depth.max_steps") if cap in changes]
    refuse(
        (caps and config.model.step.norm == "deep", f"{', '.join(caps)}: {scaled}; leave it out"),
        (_equal_steps(config.model), SAME_STEPS),
        at="--stage halting",
    )
    return config


def halting_model(model: AnyModelConfig, *, run: Path) -> ModelConfig:
    """Return the model with a halting unit on the side that predicts; UserError where it has nothing to be fitted to.

    A classifier predicts once for a sequence, so that its positions stop together; elsewhere each one has its target.
    """
    where = f"{show_path(run)}: --stage halting"
    if not isinstance(model, ModelConfig):
        raise UserError(f"{where}: this model has no states over depth to read, and so nothing to halt")
    refuse(
        (
            model.unread_states,
            f"{model.unread_states}; an exit by state_change needs no unit: ut evaluate RUN --exit state_change:0.1",
        ),
        (
            not model.decodes and model.by_length(decoder=False),
            "each sequence makes as many steps as it has positions (depth.max_steps=length), and the unit needs one "
            "last step for all; train a run with a number of steps first",
        ),
        (_equal_steps(model), SAME_STEPS),
        (
            model.halts and choices_of(model.halting).shows_mean,
            f"this run halts by {model.halting.rule}, whose positions see means over steps; a unit that is fitted "
            "alone needs states: train a run with halting.side none first",
        ),
        (
            model.architecture == "encoder_decoder" and model.halts_in(decoder=False),
            f"the encoder of this run halts (halting.side={model.halting.side}), and no target says where it "
            "should stop; train a run with halting.side none or decoder first",
        ),
        at=where,
    )
    return replaced(
        model,
        {
            "halting.side": "decoder" if model.decodes else "encoder",
            "halting.rule": "ponder",
            "halting.threshold": HaltingConfig().threshold,
            "halting.quantile": 0.5,
            "halting.bias": 0.0,
            "halting.remainder_at_cap": True,
            "halting.output": "final",
            "halting.state": "frozen",
            "halting.scope": "sequence" if model.architecture == "classifier" else "position",
        },
    )


def _equal_steps(model: ModelConfig) -> bool:
    decoder = model.decodes
    return model.depth.min_steps >= model.max_steps_of(decoder=decoder)


def halting_training(training: TrainingConfig) -> TrainingConfig:
    """Return a short training with a high rate: a unit has as many weights as a state has channels."""
    defaults = TrainingConfig(max_updates=UPDATES)
    changes: dict[str, Any] = {field: getattr(defaults, field) for field in (*WITHOUT_EFFECT, *OTHERWISE_CHOSEN)}
    changes |= {"stage": "halting", "max_updates": UPDATES, "validate_every": UPDATES // 2, "ponder_weight": 0.0}
    return dataclasses.replace(training, **changes, learning_rate=1e-2, schedule="cosine", warmup_updates=10)
