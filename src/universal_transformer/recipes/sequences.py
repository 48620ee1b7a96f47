"""Text to a structure or a shorter text: trees of sentences."""

from __future__ import annotations

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import CoordinatesConfig, DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import ParsingData
from universal_transformer.training.config import RunConfig, TrainingConfig


def parsing() -> RunConfig:
    """Trees of sentences, generated from a grammar, or of your own treebank: --data.train FILE."""
    return RunConfig(
        recipe="parsing",
        data=ParsingData(),
        model=ModelConfig(
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            coordinates=CoordinatesConfig(position="distance"),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.1),
        ),
        training=TrainingConfig(
            minutes=0.0,
            max_updates=1500,
            batch_tokens=1024,
            learning_rate=1.5e-3,
            schedule="cosine",
            warmup_updates=200,
            validate_every=500,
            save_minutes=1.0,
        ),
    )
