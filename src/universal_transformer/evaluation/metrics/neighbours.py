"""A table of intensities by their neighbours: what a model of pictures must beat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import FIRST
from universal_transformer.errors import UserError
from universal_transformer.typed import AtLeastOne, NumberOf, Range, check

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

    columns: AtLeastOne
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


def _classes(levels: int) -> int:
    """Return how many classes a neighbour can have."""
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
