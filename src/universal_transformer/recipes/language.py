"""Language models: subject-verb agreement (table 2) and LAMBADA (table 3)."""

from __future__ import annotations

import dataclasses

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import AgreementData, LambadaData, ReadingData
from universal_transformer.training.config import RunConfig, TrainingConfig
from universal_transformer.typed import replaced

_MODEL = ModelConfig(
    architecture="language_model",
    sizes=Sizes(width=128, filter_width=512, num_heads=4),
    depth=DepthConfig(max_steps=6),
    step=StepConfig(norm="pre", dropout=0.1),
)
_TRAINING = TrainingConfig(
    minutes=10.0,
    batch_tokens=1024,
    learning_rate=2e-3,
    schedule="cosine",
    warmup_updates=200,
    ponder_weight=0.005,
    validate_every=250,
    save_minutes=1.0,
)
_ON_NOVELS = dataclasses.replace(_TRAINING, minutes=60.0, batch_tokens=2048, precision="bfloat16")


def agreement() -> RunConfig:
    """Which form of a verb agrees with its subject, by a language model (table 2; `ut data fetch sva`)."""
    return RunConfig(recipe="agreement", data=AgreementData(), model=_MODEL, training=_TRAINING)


def lambada() -> RunConfig:
    """The last word of a passage, by a language model on novels (table 3; `ut data fetch lambada`, `novels`)."""
    return RunConfig(recipe="lambada", data=LambadaData(), model=_MODEL, training=_ON_NOVELS)


def lambada_reading() -> RunConfig:
    """The last word of a passage, among the words before its last sentence (table 3, reading comprehension)."""
    model = replaced(_MODEL, {"architecture": "classifier", "outputs.pooling": "pointer"})
    return RunConfig(recipe="lambada-reading", data=ReadingData(), model=model, training=_ON_NOVELS)


def lambada_ut_8() -> RunConfig:
    """The last word of a passage, by a language model on novels: Universal Transformer of 8 steps (table 3)."""
    return _deeper(8)


def lambada_ut_9() -> RunConfig:
    """The last word of a passage, by a language model on novels: Universal Transformer of 9 steps (table 3)."""
    return _deeper(9)


def _deeper(max_steps: int) -> RunConfig:
    return replaced(lambada(), {"recipe": f"lambada-ut-{max_steps}", "model.depth.max_steps": max_steps})
