"""The intensities of pixels, given the text and the pixels before them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from universal_transformer.data.example import FIRST, Example, ids_of
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics.metric import Inference, Metric
from universal_transformer.evaluation.scores import Score, ScoreSums
from universal_transformer.evaluation.tensors import Called
from universal_transformer.evaluation.trivial import TrivialBaseline, counted, num_target_ids
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.typed import NumberOf, Positive, Range, check

FEW = 16
"""Up to so many intensities, neighbours are compared exactly."""
WEIGHT = 0.2
"""Weight of the frequency of each intensity without its neighbours, in counts for each intensity."""
Numbers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NeighbourTable:
    """``p(x | c) = (n(c, x) + w K p(x)) / (n(c) + w K)`` over K intensities, counted in the pictures of training.

    The context c is the four neighbours that are known before a pixel x: left, above, above left and above right, black
    outside of the picture. Of more than 16 intensities each is one of four classes: black, and three equal ranges of
    the others. ``p(x) ∝ n(x) + 1``, and w = 0.2.
    """

    columns: Positive
    levels: Annotated[int, Range(2, 256)]
    counts: tuple[NumberOf, ...]
    """Two numbers for each context and intensity that occur: ``c K + x``, and how often."""

    def __post_init__(self) -> None:
        check(self)
        if len(self.counts) % 2 or max(self.counts[::2], default=0) >= _classes(self.levels) ** 4 * self.levels:
            raise UserError(f"counts: {len(self.counts)} numbers; expected pairs of a place in the table and a count")

    @classmethod
    def learn(cls, targets: Iterable[Sequence[int]], *, columns: int, levels: int) -> NeighbourTable:
        """Count the pixels of `targets`, each the ids of a picture of `columns` columns."""
        pictures = np.array(list(targets), dtype=np.int64)
        places, occur = np.unique(_places(pictures, columns=columns, levels=levels), return_counts=True)
        pairs = np.stack((places, occur), axis=1).ravel()
        return cls(columns=columns, levels=levels, counts=tuple(pairs.tolist()))

    def nats(self, target: Sequence[int]) -> float:
        """Return ``-Σ log p`` over the pixels of a picture."""
        intensities, (of_place, of_context, of_intensity) = np.array(target) - FIRST, self._counted
        places = _places(np.array([target]), columns=self.columns, levels=self.levels)
        prior = WEIGHT * self.levels * of_intensity[intensities]
        total = of_context[places // self.levels] + WEIGHT * self.levels
        return float(-np.log((of_place[places] + prior) / total).sum())

    @cached_property
    def _counted(self) -> tuple[Numbers, Numbers, NDArray[np.float64]]:
        """Return n(c, x) by place, n(c), and p(x)."""
        table = np.zeros((_classes(self.levels) ** 4, self.levels), dtype=np.int64)
        pairs = np.array(self.counts, dtype=np.int64).reshape(-1, 2)
        table.reshape(-1)[pairs[:, 0]] = pairs[:, 1]
        frequency = table.sum(axis=0) + 1.0
        return table.reshape(-1), table.sum(axis=1), frequency / frequency.sum()


@dataclass(frozen=True, kw_only=True)
class PictureBaseline(TrivialBaseline):
    """A table of the intensities by their neighbours."""

    loss_of: ClassVar[str] = "four neighbours of each pixel"
    neighbours: NeighbourTable

    @classmethod
    def learn(cls, examples: Iterable[Example], config: BaseConfig) -> PictureBaseline:
        targets, levels = [ids_of(one.target) for one in counted(examples)], num_target_ids(config) - FIRST
        assert config.outputs.columns is not None, "a raster has columns"
        table = NeighbourTable.learn(targets, columns=config.outputs.columns, levels=levels)
        counts = Counter(chain.from_iterable(targets))
        return cls(counts=tuple(counts[index] for index in range(FIRST + levels)), neighbours=table)

    def loss(self, targets: Sequence[tuple[int, ...]]) -> float:
        return sum(map(self.neighbours.nats, targets)) / sum(map(len, targets))


class Intensities(Metric):
    """``-1/n Σ log2 p`` over n pixels, teacher-forced. The baseline is a table of the intensities by their four
    neighbours (`NeighbourTable`).
    """

    architecture = "encoder_decoder"
    shown, decisive = (Score("bits_per_pixel", "bits per pixel", 3, "low"),), "bits_per_pixel"
    chosen_by_loss = numeric = True
    statistics = PictureBaseline
    trivial_answer = "the frequency of each intensity, given four neighbours: left, above, above left and above right"

    def answers(self, inference: Inference, examples: Sequence[Example]) -> list[ScoreSums]:
        called = Called.with_examples(inference.model, examples, inference.options)
        target = called.batch.target
        nats = cross_entropy(called.logits.float().transpose(1, 2), target, reduction="none").double()
        steps = zip(nats.sum(1).tolist(), called.source_steps, called.target_steps, strict=True)
        return [
            ScoreSums(sums={"nats": total, "pixels": float(target.shape[1])}).after(encoder=of_text, decoder=of_pixels)
            for total, of_text, of_pixels in steps
        ]

    def scores(self, sums: ScoreSums) -> dict[str, float]:
        return {"bits_per_pixel": sums.ratio("nats", over="pixels") / math.log(2)}

    def example_score(self, sums: ScoreSums) -> float:
        """The geometric mean of the probabilities of the pixels."""
        return math.exp(-sums.ratio("nats", over="pixels"))

    def trivial(self, baseline: TrivialBaseline, example: Example) -> ScoreSums:
        assert isinstance(baseline, PictureBaseline)
        target = ids_of(example.target)
        return ScoreSums(sums={"nats": baseline.neighbours.nats(target), "pixels": float(len(target))})


def _classes(levels: int) -> int:
    return levels if levels <= FEW else 4


def _places(pictures: Numbers, *, columns: int, levels: int) -> Numbers:
    """Return ``c K + x`` of each pixel of pictures [picture, pixel], one after the other."""
    intensities = (pictures - FIRST).reshape(len(pictures), -1, columns)
    classes, number = intensities, _classes(levels)
    if number < levels:
        classes = np.where(intensities == 0, 0, 1 + (intensities - 1) * 3 // (levels - 1))
    framed = np.pad(classes, ((0, 0), (1, 0), (1, 1)))
    context = np.zeros_like(intensities)
    for neighbour in (framed[:, 1:, :-2], framed[:, :-1, 1:-1], framed[:, :-1, :-2], framed[:, :-1, 2:]):
        context = context * number + neighbour
    return (context * levels + intensities).ravel()
