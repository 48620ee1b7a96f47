"""The same data and training with a baseline in place of our model."""

from __future__ import annotations

import dataclasses

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.models.config import InputsConfig, ModelConfig
from universal_transformer.training.config import RunConfig


def with_lstm(config: RunConfig) -> RunConfig:
    """Return `config` with an LSTM as wide as the model was; `recipe` ends in -lstm."""
    assert isinstance(config.model, ModelConfig)
    model = LstmConfig(
        architecture=config.model.architecture,
        inputs=InputsConfig(kind=config.model.inputs.kind),
        width=config.model.sizes.width,
        dropout=config.model.step.dropout,
    )
    return dataclasses.replace(config, recipe=f"{config.recipe}-lstm", model=model)


def with_neural_gpu(config: RunConfig) -> RunConfig:
    """Return `config` with a Neural GPU; `recipe` ends in -neural-gpu."""
    assert isinstance(config.model, ModelConfig)
    model = NeuralGpuConfig(dropout=config.model.step.dropout)
    return dataclasses.replace(config, recipe=f"{config.recipe}-neural-gpu", model=model)
