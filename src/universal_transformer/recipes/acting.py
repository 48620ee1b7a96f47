"""Classic control: the actions of an expert from observations without velocities."""

from __future__ import annotations

from universal_transformer.models.components import InputsConfig, OutputsConfig
from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import ControlData
from universal_transformer.training.config import RunConfig, TrainingConfig


def control_cartpole() -> RunConfig:
    """Balance a pole without seeing velocities; --data.environment names another task (needs the extra `control`)."""
    return RunConfig(
        recipe="control-cartpole",
        data=ControlData(),
        model=ModelConfig(
            architecture="classifier",
            inputs=InputsConfig(kind="frames"),
            outputs=OutputsConfig(pooling="last"),
            sizes=Sizes(width=64, filter_width=256, num_heads=4),
            depth=DepthConfig(max_steps=4),
            step=StepConfig(norm="pre"),
        ),
        training=TrainingConfig(
            max_updates=1000,
            batch_tokens=1024,
            optimizer="adamw",
            learning_rate=2e-3,
            schedule="cosine",
            warmup_updates=100,
            validate_every=250,
            save_minutes=1.0,
        ),
    )
