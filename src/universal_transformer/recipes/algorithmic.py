"""Table 4: copy, reverse and add digits, trained on sources of up to 40 symbols, tested on up to 400."""

from __future__ import annotations

import dataclasses

from universal_transformer.models.config import ModelConfig
from universal_transformer.tasks import AlgorithmicData
from universal_transformer.training.config import RunConfig, TrainingConfig


def _model() -> ModelConfig:
    """Random offsets while training: positions that long sources need are seen with short ones."""
    return ModelConfig(
        width=128,
        filter_width=512,
        num_heads=4,
        max_steps=6,
        dropout=0.0,
        position_offsets="random",
        max_positions=512,
    )


def _training() -> TrainingConfig:
    return TrainingConfig(
        max_updates=20_000,
        batch_tokens=8192,
        learning_rate=5e-4,
        warmup_updates=1000,
        validate_every=1000,
        patience=5,
        save_minutes=1.0,
    )


def copy() -> RunConfig:
    """Copy digits: lengths 1 to 40 in training, up to 400 in the test (table 4)."""
    return RunConfig(
        recipe="copy", data=AlgorithmicData(problem="copy"), model=_model(), training=_training()
    )


def reverse() -> RunConfig:
    """Reverse digits: lengths 1 to 40 in training, up to 400 in the test (table 4)."""
    return RunConfig(
        recipe="reverse", data=AlgorithmicData(problem="reverse"), model=_model(), training=_training()
    )


def addition() -> RunConfig:
    """Add two numbers: lengths 3 to 40 in training, up to 400 in the test (table 4)."""
    return RunConfig(
        recipe="addition", data=AlgorithmicData(problem="addition"), model=_model(), training=_training()
    )


def _far(config: RunConfig) -> RunConfig:
    """Positions of 40 symbols scattered over all 512, and told from the end too, so that far ones are not new."""
    assert isinstance(config.model, ModelConfig)
    model = dataclasses.replace(
        config.model, norm="pre", position_offsets="scattered", end_coordinates=True, halting=False
    )
    return dataclasses.replace(config, recipe=f"{config.recipe}-ours", model=model)


def copy_ours() -> RunConfig:
    """Copy digits, positions scattered while training: our try at 1.0 on length 400 (table 4)."""
    return _far(copy())


def reverse_ours() -> RunConfig:
    """Reverse digits, positions scattered while training: our try at 1.0 on length 400 (table 4)."""
    return _far(reverse())


def addition_ours() -> RunConfig:
    """Add two numbers, last digit first, positions scattered while training: our try at length 400 (table 4)."""
    config = _far(addition())
    return dataclasses.replace(config, data=AlgorithmicData(problem="addition", least_significant_first=True))


__all__ = ["addition", "addition_ours", "copy", "copy_ours", "reverse", "reverse_ours"]
