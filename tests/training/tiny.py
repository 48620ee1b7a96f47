"""A task and a configuration that train in well under a second."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from configs import config_of
from universal_transformer.data.example import Example
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.runs.journal import read_metrics
from universal_transformer.tasks import StoriesData
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.side import Side
from universal_transformer.tasks.task import Task
from universal_transformer.training.run_config import RunConfig, TrainingConfig

ARCHITECTURES = ("classifier", "encoder_decoder", "language_model", "tagger")
VOCABULARY = 9


@dataclass(frozen=True)
class TinySide(Side):
    """Ids without names."""

    kind: ClassVar[str] = "tiny"
    architecture: str = "classifier"

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"vocabulary.size": VOCABULARY}

    @property
    def target_fields(self) -> Mapping[str, Any]:
        classes = {"classifier": VOCABULARY - 3, "tagger": VOCABULARY}.get(self.architecture)
        return {"architecture": self.architecture, "vocabulary.num_classes": classes}

    def read_line(self, line: str, *, where: str) -> Example:
        raise ValueError(f"{where}: nothing to read in {line}")

    def names(self, positions: Sequence[Any]) -> list[str]:
        return [str(item) for item in positions]

    def render(self, target: int | Sequence[int]) -> str:
        return str(target)


def codec(architecture: str = "classifier") -> Codec[TinySide, TinySide]:
    return Codec.shared(TinySide(architecture))


def examples(architecture: str, *, count: int, seed: int) -> list[Example]:
    """The class is the first token's; a sequence is to be copied; a text goes up by one; a tag is its token's, and the
    second token has none."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        tokens = tuple(draw.randrange(3, VOCABULARY) for _ in range(draw.randint(2, 6)))
        if architecture == "classifier":
            made.append(Example(source=tokens, target=tokens[0] - 3))
        elif architecture == "tagger":
            made.append(Example(source=tokens, target=(tokens[0], 0, *tokens[2:])))
        elif architecture == "encoder_decoder":
            made.append(Example(source=tokens, target=(*tokens, 2)))
        else:
            text = tuple(3 + (tokens[0] + place) % (VOCABULARY - 3) for place in range(len(tokens)))
            made.append(Example(source=(), target=text))
    return made


def task(architecture: str = "classifier", *, count: int = 40, seed: int = 0) -> Task:
    return Task(
        name="tiny",
        codec=codec(architecture),
        train=examples(architecture, count=count, seed=seed),
        validation=examples(architecture, count=12, seed=seed + 1),
        test={},
        metric="error",
    )


def model_config(**fields: Any) -> ModelConfig:
    small = {"width": 16, "filter_width": 32, "num_heads": 2, "max_steps": 3, "dropout": 0.1}
    return config_of(**{**small, **fields})


def run_config(model: ModelConfig | None = None, **training: Any) -> RunConfig:
    given = {"max_updates": 6, "batch_tokens": 48, "validate_every": 3, "log_every": 1, "warmup_updates": 4}
    given |= {"threads": 1, "device": "cpu"}
    return RunConfig(
        recipe="tiny",
        data=StoriesData(),
        model=model or model_config(),
        training=TrainingConfig(**{**given, **training}),
    )


def losses(folder: Path) -> list[tuple[int, str, str]]:
    """Update, loss and gradient norm of every update, to the last bit."""
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["event"] == "update"]
    return [(line["update"], line["loss"].hex(), line["gradient_norm"].hex()) for line in lines]
