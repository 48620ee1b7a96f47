"""Spoken digits to words, and words of digits to sound."""

from __future__ import annotations

from universal_transformer.models.components import InputsConfig, OutputsConfig
from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import SpeechData, VoiceData
from universal_transformer.training.config import RunConfig, TrainingConfig


def speech() -> RunConfig:
    """Spoken digits, alone and in strings, to words (`ut data fetch fsdd`; needs the extra `sound`)."""
    return RunConfig(
        recipe="speech",
        data=SpeechData(),
        model=ModelConfig(
            inputs=InputsConfig(kind="frames", stride=4, stem="convolution"),
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.1),
        ),
        training=TrainingConfig(
            minutes=0.0,
            max_updates=12_000,
            batch_tokens=2048,
            optimizer="adamw",
            learning_rate=2e-3,
            schedule="cosine",
            warmup_updates=100,
            weight_decay=0.01,
            label_smoothing=0.1,
            validate_every=250,
            save_minutes=1.0,
        ),
    )


def voice() -> RunConfig:
    """A speaker and the word of a digit to sound (`ut data fetch fsdd`; needs the extra `sound`)."""
    return RunConfig(
        recipe="voice",
        data=VoiceData(),
        model=ModelConfig(
            outputs=OutputsConfig(kind="frames", stride=3),
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre", dropout=0.1),
        ),
        training=TrainingConfig(
            minutes=0.0,
            max_updates=10_000,
            batch_tokens=1024,
            optimizer="adamw",
            learning_rate=2e-3,
            schedule="cosine",
            warmup_updates=100,
            weight_decay=0.01,
            validate_every=500,
            save_minutes=1.0,
        ),
    )
