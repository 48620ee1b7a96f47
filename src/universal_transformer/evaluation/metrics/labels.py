"""Several labels for each example: those with a positive logit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from universal_transformer.data.example import ABSENT, PRESENT, Example, ids_of
from universal_transformer.evaluation.metrics.metric import Inference, Metric, share_changed
from universal_transformer.evaluation.scores import MACRO_F1, Score, ScoreSums
from universal_transformer.evaluation.tensors import Called
from universal_transformer.evaluation.trivial import MOST_SHOWN, TrivialBaseline, counted
from universal_transformer.files import show
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.typed import NumberOf

MICRO_F1 = Score("micro_f1", "micro-F1", 3, "high")
ALL_LABELS = Score("all_labels", "all labels right", 3, "high")


@dataclass(frozen=True, kw_only=True)
class CommonLabels(TrivialBaseline):
    """The labels of at least half of the examples; where there are none, the most frequent label."""

    loss_of: ClassVar[str] = "frequency of each label"
    examples: NumberOf
    """How many were counted."""

    @classmethod
    def learn(cls, examples: Iterable[Example], config: BaseConfig) -> CommonLabels:
        del config
        given = [ids_of(example.target) for example in counted(examples)]
        return cls(counts=tuple(column.count(PRESENT) for column in zip(*given, strict=True)), examples=len(given))

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """`PRESENT` or `ABSENT` for each label."""
        common = [2 * count >= self.examples for count in self.counts]
        if not any(common):
            common[self.most_frequent] = max(self.counts) > 0
        return tuple(PRESENT if given else ABSENT for given in common)

    def loss(self, targets: Sequence[tuple[int, ...]]) -> float:
        """Mean ``-log p`` over the labels of all examples, with one example more that has each label and one that has
        none.
        """
        share = (np.array(self.counts) + 1.0) / (self.examples + 2.0)
        return float(-np.log(np.where(np.array(targets) == PRESENT, share, 1 - share)).mean())

    def errors(self, example: Example) -> int:
        return sum(one != other for one, other in zip(ids_of(example.target), self.labels, strict=True))

    def describe(self, render: Callable[[Any], str]) -> str:
        return f"always {show(render(self.labels), limit=MOST_SHOWN)}, the common labels"


class LabelScores(Metric):
    """``2 TP / (2 TP + FP + FN)``, of all labels together and as a mean over labels, and the share of examples whose
    labels are all right.

    A label that no example has and that none was given does not count in the mean. The baseline answers the common
    labels.
    """

    architecture, writes = "classifier", "labels"
    shown: ClassVar[tuple[Score, ...]] = (MICRO_F1, MACRO_F1, ALL_LABELS)
    decisive = "micro_f1"
    statistics = CommonLabels

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        called = Called.with_examples(inference.model, examples, inference.options)
        found = []
        for example, row, made in zip(examples, (called.logits > 0).tolist(), called.source_steps, strict=True):
            given = tuple(PRESENT if positive else ABSENT for positive in row)
            found.append(self.sums(example, given).after(encoder=made))
        return found

    def sums(self, example: Example, given: tuple[int, ...]) -> ScoreSums:
        """What labels that an example was given add."""
        wanted = ids_of(example.target)
        sums = defaultdict[str, float](float, right=float(given == wanted))
        for label, pair in enumerate(zip(wanted, given, strict=True)):
            if PRESENT in pair:
                sums[f"hits of {label}"] += 2.0 * (pair == (PRESENT, PRESENT))
                sums[f"named {label}"] += float(pair.count(PRESENT))
        return ScoreSums(sums=dict(sums), answer=given)

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        named = {name.removeprefix("named "): count for name, count in sums.sums.items() if name.startswith("named ")}
        hits = {label: sums.sums[f"hits of {label}"] for label in named}
        each = [hits[label] / named[label] for label in named]
        return {
            "micro_f1": sum(hits.values()) / sum(named.values()) if named else 1.0,
            "macro_f1": sum(each) / len(each) if each else 1.0,
            "all_labels": sums.mean("right"),
        }

    def text_of(self, sums: ScoreSums, example: Example) -> str:
        del example
        return self.codec.render(sums.answer)

    def changed(self, before: Sequence[int], after: Sequence[int]) -> float:
        return share_changed(before, after)

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        assert isinstance(baseline, CommonLabels)
        return self.sums(example, baseline.labels)
