"""A task: examples to train, validate and test on, a codec, and a metric."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from universal_transformer.data.example import PADDING, Example
from universal_transformer.data.hub import absolute, bare, is_hub
from universal_transformer.data.tokenizer import END, KINDS, START
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.environments import Episodes
from universal_transformer.tasks.lazy import Examples, LazyExamples, MappedExamples
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.typed import replaced

SPECIAL_IDS = {"vocabulary.padding_id": PADDING, "vocabulary.start_id": START, "vocabulary.end_id": END}
"""Ids that batches and tokenizers use, by their path in a model's configuration."""

LIMIT = "generation.max_new_tokens"
LOOKED_AT = 1000

BleuTokenizer = Literal[
    "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "flores101", "flores200", "spBLEU-1K"
]
"""How sacreBLEU cuts texts into words before it counts them."""

HeldOut = Mapping[str, Sequence[Mapping[str, str | list[str]]]]
"""Rows by part, as objects of JSON lines."""

Model = TypeVar("Model")


@dataclass(frozen=True)
class Token:
    """A token, or a word, and what the model did at its position."""

    text: str
    steps: float | None
    """Depth steps; None for a model without depth."""
    score: float | None = None
    """Natural logarithm of the probability that the model gave to a token of its answer; None in the input."""

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, **({} if self.score is None else {"score": self.score}), "steps": self.steps}


@dataclass(frozen=True)
class Prediction:
    """The answer of a model to one line of input."""

    text: str
    score: float
    """Natural logarithm of the probability of the answer: of a class, or of all tokens of a sequence and its end."""
    finished: bool = True
    """Whether the answer is complete; False for one that was cut at the limit of its length."""
    tokens: list[Token] = field(default_factory=list)
    """The source positions, named by `Codec.words`, in reading order; of a language model, those of the prompt."""
    words: list[Token] = field(default_factory=list)
    """The words of the input as they were written, each with the mean steps of its tokens."""
    output: list[Token] = field(default_factory=list)
    """The tokens of the answer, its end included; the labels that apply, of several; empty for a class."""
    unknown: list[str] = field(default_factory=list)
    """Parts of the input that the model does not know, as they were written."""
    content: bytes = b""
    """The answer as the content of a file, where the codec writes files (`Side.suffix`)."""
    written: Any = None
    """The answer as the model wrote it: a class, a class for each position, ids, or frames."""
    choices: list[tuple[str, float]] = field(default_factory=list)
    """The best answers with their scores, best first as the search ranks them; the first is `text`."""

    @property
    def steps(self) -> list[float]:
        """Steps taken at each source position; empty for a model without depth."""
        return [token.steps for token in self.tokens if token.steps is not None]

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "score": self.score,
            "finished": self.finished,
            "choices": [{"text": text, "score": score} for text, score in self.choices],
            "words": [word.to_dict() for word in self.words],
            "tokens": [token.to_dict() for token in self.tokens],
            "output": [token.to_dict() for token in self.output],
            "unknown": self.unknown,
        }


@dataclass(frozen=True)
class Task:
    """Examples, their codec and metric, and the fields of a model that follow from them."""

    name: str
    codec: Codec[Any, Any]
    train: Examples
    validation: Examples
    test: Mapping[str, Sequence[Example]]
    """Named test sets; groups inside a set are `Example.group`."""
    metric: str
    """How it is scored: a name of `evaluation.metrics.METRICS`."""
    notes: tuple[str, ...] = ()
    """Notes that belong to every figure: incomplete data, a changed split."""
    test_notes: tuple[str, ...] = ()
    """Those of `notes` that belong only to figures of the test sets."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """Of the metric "bleu"."""
    held_out: HeldOut = field(default_factory=dict)
    """Rows that were held out of the training file, by part: a run keeps them (`Saved.held_out`)."""
    episodes: Mapping[str, Episodes] = field(default_factory=dict)
    """Of the metric "actions": episodes in which a model acts, by part or test set."""

    def configure(self, model: Model) -> Model:
        """Return the configuration with the fields that the data determine filled in.

        UserError for a field that has another value already, neither its default nor that of the data. Only the limit
        of the length of an answer may be chosen: the data decide where it is 0.
        """
        fields = {**SPECIAL_IDS, **self.codec.model_fields}
        default = type(model)()
        for path, value in fields.items():
            given = attrgetter(path)(model)
            if given not in (value, attrgetter(path)(default)):
                raise UserError(
                    f"model.{path}={given}: the data of task {self.name} determine that it is {value}: leave it out"
                )
        if attrgetter(LIMIT)(model) is None and LIMIT not in fields:
            fields[LIMIT] = self.answer_limit()
        return replaced(model, fields)

    def answer_limit(self) -> int | None:
        """Return how many tokens (<end> included) or frames an answer may have; None for a class, or one a position.

        The longest training target, a quarter of it and 10 more. A language model is given no more than the tokens of
        its longest training text. Of examples that are generated when they are needed, the first `LOOKED_AT` count.
        """
        architecture = self.codec.model_fields.get("architecture")
        if architecture in ("classifier", "tagger"):
            return None
        if isinstance(self.train, MappedExamples):
            longest = self.train.longest_target
        else:
            examples = self.train[:LOOKED_AT] if isinstance(self.train, LazyExamples) else self.train
            longest = max((len(one.target) for one in examples if not isinstance(one.target, int)), default=0)
        if not longest:
            return None
        return longest if architecture == "language_model" else longest + longest // 4 + 10


@dataclass(frozen=True)
class Saved:
    """What a run keeps of its data."""

    codec: Codec[Any, Any]
    """The codec that its model was trained with."""
    held_out: Path
    """Folder of the rows that were held out of the training file."""

    def rows(self, part: str) -> Path:
        """Return the file with the rows of a part that were held out; UserError if it is gone."""
        path = held_out_file(self.held_out, part)
        if not path.is_file():
            raise UserError(
                f"{show_path(path)}: no such file; the run kept there what it held out of its training file; "
                "ut evaluate RUN --data.test FILE scores another"
            )
        return path


def held_out_file(folder: Path, part: str) -> Path:
    return folder / f"{part}.jsonl"


def file_fields(data: TaskData) -> dict[str, Path]:
    values = {name: getattr(data, name) for name in getattr(data, "FILES", ())}
    return {name: Path(value) for name, value in values.items() if value and value not in KINDS and not is_hub(value)}


def with_files(data: TaskData, files: Mapping[str, Path]) -> TaskData:
    changes: dict[str, Any] = {name: str(path) for name, path in files.items()}
    return dataclasses.replace(data, **changes)


def with_validation_size(data: TaskData, size: int) -> TaskData:
    """Return the data of a task with `size` validation examples, boards, stories …; UserError if a file holds them.

    A larger number adds examples that the weights were not chosen by. Boards of Sudoku come from a part of their own;
    other additional examples were trained on only where they are short enough to be drawn twice.
    """
    counts = [name for name in data.__dataclass_fields__ if name.startswith("validation_")]
    drawn = [name for name in counts if isinstance(getattr(data, name), int)]
    if not drawn:
        raise UserError(
            "a number of validation examples is for tasks that draw them, such as stories, sudoku and addition; the "
            "validation examples of this run are a part of its files"
        )
    changes: dict[str, Any] = dict.fromkeys(drawn, size)
    return dataclasses.replace(data, **changes)


def _with_hub(data: TaskData, change: Callable[[str], str]) -> TaskData:
    hub = {name: value for name in getattr(data, "FILES", ()) if is_hub(value := getattr(data, name))}
    changes: dict[str, Any] = {name: change(value) for name, value in hub.items()}
    return dataclasses.replace(data, **changes)


def with_absolute_files(data: TaskData) -> TaskData:
    """Return the data of a task with absolute names of files, so that a run works from any folder."""
    return with_files(_with_hub(data, absolute), {name: path.absolute() for name, path in file_fields(data).items()})


def with_bare_files(data: TaskData) -> TaskData:
    """Return the data of a task with names of files without their folders, for others than the user."""
    return with_files(_with_hub(data, bare), {name: Path(path.name) for name, path in file_fields(data).items()})


@runtime_checkable
class TaskData(Protocol):
    """The typed, documented fields that choose a task's data: one frozen dataclass for each task."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def sides(self) -> Sides:
        """Classes of source and target of its codec."""

    def load(self, saved: Saved | None = None) -> Task:
        """Read or generate the examples; those of a run are encoded with the codec that it saved.

        Then `Task.train` may be read only when it is asked for, so that nothing else needs the training file.
        """
