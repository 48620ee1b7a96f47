"""Batches of examples of similar length under a limit of tokens; a function of the seed and the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from universal_transformer.typed import AtLeastOne, NumberOf, typed

_JITTER = 0.1
BLOCK = 256
"""Examples that follow each other on disk and stay together: they are read at once."""
WINDOW = 256
"""Blocks whose examples are sorted by length together."""
_PERMUTATION = 1
"""Third number of the seed of a permutation of blocks: other random numbers than those of the batches."""


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

    def windows(self, epoch: int) -> Iterator[list[list[int]]]:
        """Yield the batches of an epoch, all at once."""
        yield self.epoch(epoch)

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


@dataclass(frozen=True)
class WindowSampler:
    """The batches of examples that are too many to be sorted at once, or to be read: window after window.

    Blocks of `BLOCK` examples that follow each other are permuted, and `WINDOW` of them are a window, about 65,000
    examples. The batches of a window are those that `BucketSampler` makes of its examples. What is in memory is one
    window, and the permutation: 8 bytes a block.
    """

    sizes: Callable[[np.ndarray], np.ndarray]
    """Returns the positions of the examples with these indices."""
    count: int
    batch_tokens: int
    seed: int

    def windows(self, epoch: int) -> Iterator[list[list[int]]]:
        """Yield the batches of each window: together, every example once. A function of (seed, epoch) alone."""
        blocks = np.random.default_rng((self.seed, epoch, _PERMUTATION)).permutation(-(-self.count // BLOCK))
        windows = np.array_split(blocks, -(-len(blocks) // WINDOW))
        for place, window in enumerate(windows):
            indices = (window[:, None] * BLOCK + np.arange(BLOCK)).ravel()
            indices = indices[indices < self.count]
            bucket = BucketSampler(self.sizes(indices).tolist(), self.batch_tokens, seed=self.seed, shuffle=True)
            yield [indices[batch].tolist() for batch in bucket.epoch(epoch * len(windows) + place)]
