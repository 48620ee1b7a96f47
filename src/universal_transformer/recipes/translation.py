"""Translation from English to German (table 7)."""

from __future__ import annotations

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import StepConfig
from universal_transformer.presets import SIZES
from universal_transformer.recipes.own_files import pairs
from universal_transformer.tasks import TranslationData
from universal_transformer.training.config import RunConfig, TrainingConfig
from universal_transformer.typed import replaced


def multi30k() -> RunConfig:
    """Multi30k, English to German image descriptions (`ut data fetch multi30k`)."""
    data = TranslationData(vocabulary_size=4000)
    return replaced(pairs(), {"recipe": "multi30k", "data": data, "training.precision": "bfloat16"})


def wmt14() -> RunConfig:
    """WMT14 English to German from your own files, in the size of the paper's base model (table 7)."""
    return RunConfig(
        recipe="wmt14",
        data=TranslationData(corpus="wmt14", vocabulary_size=32_000),
        model=ModelConfig(sizes=SIZES["base"], step=StepConfig(norm="pre")),
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
    return replaced(wmt14(), {"recipe": "wmt14-ut-small", "model.sizes": SIZES["small"]})
