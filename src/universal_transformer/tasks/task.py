"""What a task is: examples to train, validate and test on, a codec, and how it is scored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from universal_transformer.data.example import PADDING, Example
from universal_transformer.data.tokenizer import END, START
from universal_transformer.errors import UserError
from universal_transformer.typed import replaced

CODEC_FILE = "codec.json"
SPECIAL_IDS = {"vocabulary.padding_id": PADDING, "vocabulary.start_id": START, "vocabulary.end_id": END}
"""Ids that batches and tokenizers use, by their path in a model's configuration."""

Measure = Literal["error", "sequence", "bleu", "perplexity", "accuracy", "last_word", "ranking"]
"""How a task is scored; `evaluation.evaluate` says what each is."""

Model = TypeVar("Model")


@dataclass(frozen=True)
class Prediction:
    """What a model says about one line of input."""

    text: str
    score: float
    """Probability of a class; log probability of a sequence."""
    steps: list[float] = field(default_factory=list)
    """Steps taken at each source position (one value a label of `Codec.words`)."""
    choices: list[tuple[str, float]] = field(default_factory=list)
    """The best answers with their scores, best first, `text` among them."""


@runtime_checkable
class Codec(Protocol):
    """Text to ids and back: what a run saves beside its weights, enough to predict on raw input."""

    def save(self, folder: Path) -> None:
        """Write ``codec.json``, whose "kind" `load_codec` looks at, and tokenizer files if there are any."""

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Turn numbered lines of raw input (of the file `name`) into examples without answers."""

    def render(self, target: int | Sequence[int]) -> str:
        """Turn a class or target ids into text."""

    def words(self, example: Example) -> list[str]:
        """Return one label for each source position, for plots."""


@dataclass(frozen=True)
class Task:
    """Examples, how they are encoded and scored, and what they decide about the model."""

    name: str
    codec: Codec
    train: Sequence[Example]
    validation: Sequence[Example]
    test: Mapping[str, Sequence[Example]]
    """Named test sets; groups inside a set are `Example.group`."""
    metric: Measure
    model_fields: Mapping[str, Any]
    """Fields of the model's configuration that the data determine, by dotted path: ``{"vocabulary.size": 40}``."""
    notes: tuple[str, ...] = ()
    """What every figure must say beside it: incomplete data, a changed split."""

    def configure(self, model: Model) -> Model:
        """Return the configuration with the fields that the data determine filled in.

        UserError for a field that has another value already, neither its default nor that of the data.
        """
        fields = {**SPECIAL_IDS, **self.model_fields}
        default = type(model)()
        for path, value in fields.items():
            given = attrgetter(path)(model)
            if given not in (value, attrgetter(path)(default)):
                raise UserError(
                    f"model.{path}={given}: the data of task {self.name} determine that it is {value}: leave it out"
                )
        return replaced(model, fields)


@runtime_checkable
class TaskData(Protocol):
    """The typed, documented fields that choose a task's data; one frozen dataclass a task."""

    def load(self) -> Task:
        """Read or generate the examples."""
