"""Translation from English to German (table 7)."""

from __future__ import annotations

import dataclasses

from universal_transformer.models.config import ModelConfig, preset
from universal_transformer.recipes.own_files import translation_training
from universal_transformer.tasks import TranslationData
from universal_transformer.training.config import RunConfig, TrainingConfig


def multi30k() -> RunConfig:
    """Multi30k, English to German image descriptions (`ut data fetch multi30k`)."""
    return RunConfig(
        recipe="multi30k",
        data=TranslationData(vocabulary_size=4000),
        model=ModelConfig(width=192, filter_width=768, num_heads=4, max_steps=4, norm="pre", dropout=0.1),
        training=dataclasses.replace(translation_training(), precision="bfloat16"),
    )


def wmt14() -> RunConfig:
    """WMT14 English to German from your own files, in the size of the paper's base model (table 7)."""
    return RunConfig(
        recipe="wmt14",
        data=TranslationData(corpus="wmt14", vocabulary_size=32_000),
        model=dataclasses.replace(preset(size="base"), norm="pre"),
        training=TrainingConfig(
            max_updates=100_000,
            batch_tokens=25_000,
            learning_rate=7e-4,
            warmup_updates=8000,
            label_smoothing=0.1,
            validate_every=2000,
            average_checkpoints=5,
            save_minutes=1.0,
            precision="bfloat16",
        ),
    )


def wmt14_small() -> RunConfig:
    """WMT14 English to German from your own files, in the size of the paper's small model (table 7)."""
    config = wmt14()
    model = dataclasses.replace(preset(size="small"), norm="pre")
    return dataclasses.replace(config, recipe="wmt14-ut-small", model=model)
