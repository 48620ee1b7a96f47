"""Text to trees, summaries and records."""

from __future__ import annotations

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import CoordinatesConfig, DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import PairsData, ParsingData
from universal_transformer.training.config import RunConfig, TrainingConfig


def parsing() -> RunConfig:
    """Trees of sentences, generated from a grammar, or of your own treebank: --data.train FILE."""
    return _recipe("parsing", ParsingData(), max_updates=3000)


def summaries() -> RunConfig:
    """Summaries of texts: --data.train FILE (as for pairs); without it, synthetic reports and their summaries."""
    data = PairsData(vocabulary_size=4000, metric="rouge", synthetic="summaries")
    return _recipe("summaries", data, max_updates=1500)


def records() -> RunConfig:
    """Fields of a text: --data.train FILE (as for pairs); without it, synthetic orders and their records."""
    data = PairsData(vocabulary_size=1000, metric="sequence", synthetic="records")
    return _recipe("records", data, max_updates=1500)


def _recipe(name: str, data: ParsingData | PairsData, *, max_updates: int) -> RunConfig:
    return RunConfig(
        recipe=name,
        data=data,
        model=ModelConfig(
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            coordinates=CoordinatesConfig(position="distance"),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.1),
        ),
        training=TrainingConfig(
            minutes=0.0,
            max_updates=max_updates,
            batch_tokens=1024,
            learning_rate=1.5e-3,
            schedule="cosine",
            warmup_updates=200,
            validate_every=500,
            save_minutes=1.0,
        ),
    )
