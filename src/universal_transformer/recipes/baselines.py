"""The same data and training with a baseline in place of our model."""

from __future__ import annotations

import dataclasses

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.training.config import RunConfig


def with_lstm(
    config: RunConfig, *, width: int | None = None, num_layers: int = 2, bidirectional: bool = False
) -> RunConfig:
    """Return `config` with an LSTM, as wide as the model was unless `width` says otherwise; `recipe` ends in -lstm."""
    model = LstmConfig(
        architecture=config.model.architecture,
        inputs=config.model.inputs,
        width=width or config.model.width,
        num_layers=num_layers,
        bidirectional=bidirectional,
        dropout=config.model.dropout,
    )
    return dataclasses.replace(config, recipe=f"{config.recipe}-lstm", model=model)


def with_neural_gpu(config: RunConfig, *, output_ratio: float = 1.0, width: int = 24) -> RunConfig:
    """Return `config` with a Neural GPU; `recipe` ends in -neural-gpu.

    `output_ratio` makes room for targets that are longer than sources: 2 for doubling.
    """
    model = NeuralGpuConfig(output_ratio=output_ratio, width=width, dropout=config.model.dropout)
    return dataclasses.replace(config, recipe=f"{config.recipe}-neural-gpu", model=model)


__all__ = ["with_lstm", "with_neural_gpu"]
