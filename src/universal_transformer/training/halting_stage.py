"""Halting in two stages: a model that was trained at a fixed or random depth, then its halting unit alone.

The second stage keeps all other weights and fits the unit, in minutes, to the step after which no later one predicts
better (`step_losses.stop_loss`; the two stages are those of Ouro, arXiv 2510.25741). The output is the last state (D8):
a model that was trained at a fixed or random depth computes the same as before where no position stops. The output of
one that was trained with ACT was the weighted mean of its states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.files import read_json, show_path
from universal_transformer.kinds import AnyModelConfig
from universal_transformer.manifest import MODEL
from universal_transformer.models.components import ENCODERS
from universal_transformer.models.model_config import ModelConfig, config_from_dict
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.rules import choices_of
from universal_transformer.training.run_config import RunConfig, TrainingConfig
from universal_transformer.training.warm_start import warm_start_of
from universal_transformer.typed import listed, replaced

UPDATES = 300

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
    for name in changes:
        if name.startswith("model.") and not name.startswith(FITTED):
            allowed = listed([f"{field}*" if field.endswith(".") else field for field in FITTED])
            raise UserError(f"--stage halting: {name}: the model is that of the run; it can change in {allowed}")
        if name.removeprefix("training.") in WITHOUT_EFFECT and name.startswith("training."):
            raise UserError(f"--stage halting: {name}: without effect on a second stage; leave it out")
    config = replaced(config, changes)
    assert isinstance(config.model, ModelConfig)
    if config.model.step.norm == "deep" and (
        caps := {"model.depth.max_steps", "model.depth.decoder_max_steps"} & set(changes)
    ):
        raise UserError(
            f"--stage halting: {min(caps)}: the residual scale of step.norm=deep follows from it, so that the weights "
            "would be those of another model; leave it out"
        )
    _check_steps(config.model, where="--stage halting")
    return config


def _check_steps(model: ModelConfig, *, where: str) -> None:
    """UserError where the side that predicts makes as many steps at every position."""
    decoder = model.architecture in ("encoder_decoder", "language_model")
    if model.min_steps_of(decoder=decoder) >= model.max_steps_of(decoder=decoder):
        raise UserError(f"{where}: all positions of this model take as many steps, so that there is nothing to decide")


def _check_trained(model: ModelConfig, *, where: str) -> None:
    """UserError for a trained model whose states give the unit nothing to be fitted to."""
    if model.unread_states:
        raise UserError(
            f"{where}: {model.unread_states}; an exit by state_change needs no unit: ut evaluate RUN --exit "
            "state_change:0.1"
        )
    if model.architecture in ENCODERS and model.by_length(decoder=False):
        raise UserError(
            f"{where}: each sequence makes as many steps as it has positions (depth.max_steps=length), and the unit "
            "needs one last step for all; train a run with a number of steps first"
        )
    _check_steps(model, where=where)
    if model.halts and choices_of(model.halting).shows_mean:
        raise UserError(
            f"{where}: this run halts by {model.halting.rule}, whose positions see means over steps; a unit that is "
            "fitted alone needs states: train a run with halting.side none first"
        )
    if model.architecture == "encoder_decoder" and model.halts_in(decoder=False):
        raise UserError(
            f"{where}: the encoder of this run halts (halting.side={model.halting.side}), and no target says where it "
            "should stop; train a run with halting.side none or decoder first"
        )


def halting_model(model: AnyModelConfig, *, run: Path) -> ModelConfig:
    """Return the model with a halting unit on the side that predicts.

    A classifier predicts once for a sequence, so that its positions stop together; elsewhere each one has its target.
    """
    where = f"{show_path(run)}: --stage halting"
    if not isinstance(model, ModelConfig):
        raise UserError(f"{where}: this model has no states over depth to read, and so nothing to halt")
    _check_trained(model, where=where)
    decoder = model.architecture in ("encoder_decoder", "language_model")
    return replaced(
        model,
        {
            "halting.side": "decoder" if decoder else "encoder",
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


def halting_training(training: TrainingConfig) -> TrainingConfig:
    """Return a short training with a high rate: a unit has as many weights as a state has channels."""
    return dataclasses.replace(
        training,
        stage="halting",
        minutes=None,
        max_updates=UPDATES,
        learning_rate=1e-2,
        schedule="cosine",
        warmup_updates=10,
        weight_decay=0.0,
        label_smoothing=0.0,
        ponder_weight=0.0,
        halting_delay=0.0,
        step_loss="last",
        depth="fixed",
        validate_every=UPDATES // 2,
        patience=None,
        average_checkpoints=None,
        ema_decay=None,
    )
