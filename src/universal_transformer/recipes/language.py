"""Language models: subject-verb agreement (table 2)."""

from __future__ import annotations

from universal_transformer.models.config import ModelConfig
from universal_transformer.tasks import AgreementData
from universal_transformer.training.config import RunConfig, TrainingConfig


def agreement() -> RunConfig:
    """Which form of a verb agrees with its subject, by a language model (table 2; `ut data fetch sva`)."""
    return RunConfig(
        recipe="agreement",
        data=AgreementData(),
        model=ModelConfig(
            architecture="language_model",
            width=128,
            filter_width=512,
            num_heads=4,
            max_steps=6,
            norm="pre",
            halting=True,
            dropout=0.1,
        ),
        training=TrainingConfig(
            minutes=10.0,
            batch_tokens=1024,
            learning_rate=2e-3,
            schedule="cosine",
            warmup_updates=200,
            ponder_weight=0.005,
            validate_every=250,
        ),
    )


__all__ = ["agreement"]
