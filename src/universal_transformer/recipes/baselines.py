"""The same data and training with a baseline in place of our model."""

from __future__ import annotations

import dataclasses

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.training.config import RunConfig


def with_lstm(config: RunConfig) -> RunConfig:
    """Return `config` with an LSTM as wide as the model was; `recipe` ends in -lstm."""
    model = LstmConfig(
        architecture=config.model.architecture,
        inputs=config.model.inputs,
        width=config.model.width,
        dropout=config.model.dropout,
    )
    return dataclasses.replace(config, recipe=f"{config.recipe}-lstm", model=model)


def with_neural_gpu(config: RunConfig) -> RunConfig:
    """Return `config` with a Neural GPU; `recipe` ends in -neural-gpu."""
    model = NeuralGpuConfig(dropout=config.model.dropout)
    return dataclasses.replace(config, recipe=f"{config.recipe}-neural-gpu", model=model)
