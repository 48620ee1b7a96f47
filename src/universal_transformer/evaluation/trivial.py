"""What the training targets say by themselves: the statistics of answers that need no model."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from universal_transformer.data.example import NO_CLASS, Example, ids_of, spread
from universal_transformer.errors import refuse
from universal_transformer.files import read_json, show, show_path, write_json
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.typed import NumberOf, typed

Baseline = TypeVar("Baseline", bound="TrivialBaseline")
MOST_SHOWN = 40
COUNTED = 10_000
"""Of examples that are mapped from disk, so many are counted, evenly spread."""


@dataclass(frozen=True, kw_only=True)
class TrivialBaseline:
    """Statistics of the training targets, from which a metric answers without reading the input.

    A metric that needs others has a subclass (`Metric.statistics`).
    """

    loss_of: ClassVar[str] = "frequency of each token"
    """What the probabilities of `loss` are, in words."""
    counts: tuple[NumberOf, ...]
    """How often each class, or each token of the target vocabulary, occurs in the targets, by id."""
    target: tuple[NumberOf, ...] = ()
    """The most frequent target with its end id; empty for classes and for a language model."""
    copies: bool = False
    """Whether a source is a better answer than the most frequent target."""

    @classmethod
    def learn(cls: type[Baseline], examples: Iterable[Example], config: BaseConfig) -> Baseline:
        """Count the targets of training; `config` is that of the model, with its sizes."""
        counts, targets = Counter[int](), Counter[Any]()
        for example in counted(examples):
            counts.update(target_classes(example))
            targets[example.target] += 1
        frequent = targets.most_common(1)[0][0] if config.architecture == "encoder_decoder" else ()
        return cls(counts=tuple(counts[index] for index in range(num_target_ids(config))), target=frequent)

    def save(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls: type[Baseline], path: Path, config: BaseConfig) -> Baseline:
        """Undo `save`; UserError for another file than that of a model with this configuration."""
        baseline: Baseline = typed(read_json(path), cls, where=show_path(path))
        size = num_target_ids(config)
        greatest = max(baseline.target, default=0)
        refuse(
            (len(baseline.counts) != size, f"counts: found {len(baseline.counts)} of them; this model has {size}"),
            (greatest >= size, f"target: found id {greatest}; this model has {size}"),
            at=show_path(path),
        )
        return baseline

    @cached_property
    def nats(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """``-log p`` of each class or token, with one added to every count."""
        counts = np.array(self.counts, dtype=np.float64) + 1
        return np.log(counts.sum()) - np.log(counts)

    @cached_property
    def most_frequent(self) -> int:
        """The most frequent class or token; the smallest id of several."""
        return self.counts.index(max(self.counts))

    def loss(self, targets: Sequence[tuple[int, ...]]) -> float:
        """Mean ``-log p`` over all ids of targets."""
        return float(self.nats[[*chain.from_iterable(targets)]].mean())

    def classes(self, source: Any) -> tuple[int, ...]:
        """The class of each target of a source: the most frequent one."""
        return (self.most_frequent,) * max(1, len(source))

    def errors(self, example: Example) -> int:
        """How many targets of an example have another class, or token, than the most frequent one."""
        return sum(index not in (NO_CLASS, self.most_frequent) for index in target_classes(example))

    def describe(self, render: Callable[[Any], str]) -> str:
        """What is answered, in words: always the most frequent target or class."""
        what, answer = ("target", self.target[:-1]) if self.target else ("class", self.most_frequent)
        return f"always {show(render(answer), limit=MOST_SHOWN)}, the most frequent {what}"


def counted(examples: Iterable[Example]) -> Iterable[Example]:
    return spread(examples, count=COUNTED) if isinstance(examples, MappedExamples) else examples


def target_classes(example: Example) -> tuple[int, ...]:
    """Return the ids of a target: one class, or all that are not padding; none of frames."""
    ids = ids_of(example.target)
    return ids if ids == (example.target,) else tuple(index for index in ids if index != example.padding_id)


def num_target_ids(config: BaseConfig) -> int:
    classes = config.vocabulary.num_classes if not config.decodes else None
    return config.vocabulary.written if classes is None else classes
