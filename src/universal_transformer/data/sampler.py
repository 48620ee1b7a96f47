"""Batches of examples of similar length under a limit of tokens; a function of the seed and the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from universal_transformer.typed import AtLeastOne, NumberOf, typed

_JITTER = 0.1


@dataclass(frozen=True)
class BucketSampler:
    """rows · longest row ≤ `batch_tokens` in every batch, every example once an epoch.

    `sizes` are the examples' positions (`data.example.size`). The rows of a batch have similar lengths, which keeps
    padding small: examples are ordered by size · (1 + u), u uniform on [0, 0.1), a new batch begins where the next row
    would exceed the limit, and the batches are shuffled. An example larger than the limit is a batch of one row.
    Without `shuffle`, examples are ordered by size, then by index, and every epoch is the same.
    """

    sizes: Sequence[int]
    batch_tokens: int
    seed: int
    shuffle: bool

    def __post_init__(self) -> None:
        typed(self.batch_tokens, AtLeastOne, where="batch_tokens")
        typed(self.seed, NumberOf, where="seed")

    def epoch(self, number: int) -> list[list[int]]:
        """Return the batches of epoch `number` as example indices: a function of (seed, number) alone."""
        sizes = np.asarray(self.sizes, dtype=np.int64)
        if not self.shuffle:
            return self._cut(np.argsort(sizes, kind="stable"))
        generator = np.random.default_rng((self.seed, number))
        jittered = sizes * (1 + _JITTER * generator.random(len(sizes)))
        batches = self._cut(np.lexsort((generator.random(len(sizes)), jittered)))
        return [batches[index] for index in generator.permutation(len(batches))]

    def _cut(self, order: np.ndarray) -> list[list[int]]:
        batches: list[list[int]] = []
        longest = 0
        for index in order.tolist():
            grown = max(longest, self.sizes[index])
            if batches and (len(batches[-1]) + 1) * grown <= self.batch_tokens:
                batches[-1].append(index)
                longest = grown
            else:
                batches.append([index])
                longest = self.sizes[index]
        return batches
