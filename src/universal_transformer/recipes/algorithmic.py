"""Table 4: copy, reverse and add digits, trained on sources of up to 40 symbols, tested on up to 400."""

from __future__ import annotations

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


__all__ = ["addition", "copy", "reverse"]
