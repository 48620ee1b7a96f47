"""Handwritten digits: text to pictures, and pictures to text; or pictures and captions of your own."""

from __future__ import annotations

from universal_transformer.models.components import InputsConfig
from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import CaptionsData, PicturesData
from universal_transformer.training.config import RunConfig, TrainingConfig


def pictures() -> RunConfig:
    """Draw what a text says: handwritten digits of 14 × 14 pixels, or your own pictures (--data.train FILE)."""
    return _pictures("pictures", side=14, levels=256)


def pictures_28() -> RunConfig:
    """Draw what a text says: handwritten digits of 28 × 28 pixels with 16 intensities."""
    return _pictures("pictures-28", side=28, levels=16)


def _pictures(recipe: str, *, side: int, levels: int) -> RunConfig:
    return RunConfig(
        recipe=recipe,
        data=PicturesData(side=side, levels=levels),
        model=ModelConfig(
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.0),
        ),
        training=TrainingConfig(
            max_updates=4500,
            batch_tokens=16 * side**2,
            optimizer="adamw",
            learning_rate=2e-3,
            schedule="linear",
            warmup_updates=30,
            validate_every=500,
            save_minutes=1.0,
        ),
    )


def captions_digits() -> RunConfig:
    """Read single handwritten digits: the first stage, from which `captions` starts."""
    return _captions("captions-digits", rows=0, updates=1200, learning_rate=1e-3, validate_every=200)


def captions() -> RunConfig:
    """Read handwritten digits alone and in rows; start from the first stage: --from RUN of captions-digits.

    Or caption your own pictures (--data.train FILE).
    """
    # without the first stage 54 % are right after 3,000 updates: notebook/README.md
    return _captions("captions", rows=1000, updates=2500, learning_rate=1e-3, validate_every=500)


def _captions(recipe: str, *, rows: int, updates: int, learning_rate: float, validate_every: int) -> RunConfig:
    return RunConfig(
        recipe=recipe,
        data=CaptionsData(rows=rows),
        model=ModelConfig(
            inputs=InputsConfig(kind="patches", stride=4, stem="convolution"),
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.1),
        ),
        training=TrainingConfig(
            max_updates=updates,
            batch_tokens=2688,
            optimizer="adamw",
            learning_rate=learning_rate,
            schedule="cosine",
            warmup_updates=200,
            validate_every=validate_every,
            select_by="metric",
            save_minutes=1.0,
        ),
    )
