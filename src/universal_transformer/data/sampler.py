"""Batches of examples of similar length under a limit of tokens; a function of the seed and the epoch."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from universal_transformer.typed import Positive, typed

_JITTER = 0.1
BLOCK = 256
"""Examples that follow each other on disk and stay together: they are read at once."""
WINDOW = 256
"""Blocks whose examples are sorted by length together."""
_PERMUTATION = 1
"""Third number of the seed of a permutation of blocks: other random numbers than those of the batches."""


def batches_by_size(sizes: Sequence[int], *, batch_tokens: int, seed: tuple[int, int] | None = None) -> list[list[int]]:
    """Return batches of indices with rows · longest row ≤ `batch_tokens` and every example once.

    `sizes` are the examples' positions (`data.example.size`). The rows of a batch have similar lengths, which keeps
    padding small: examples are ordered by size, then by index, and a new batch begins where the next row would exceed
    the limit. An example larger than the limit is a batch of one row. With a `seed` (seed of the run, epoch) the order
    is by size · (1 + u), u uniform on [0, 0.1), and the batches are shuffled.
    """
    typed(batch_tokens, Positive, where="batch_tokens")
    lengths = np.asarray(sizes, dtype=np.int64)
    if seed is None:
        return _cut(np.argsort(lengths, kind="stable"), sizes, batch_tokens=batch_tokens)
    generator = np.random.default_rng(seed)
    jittered = lengths * (1 + _JITTER * generator.random(len(lengths)))
    batches = _cut(np.lexsort((generator.random(len(lengths)), jittered)), sizes, batch_tokens=batch_tokens)
    return [batches[index] for index in generator.permutation(len(batches))]


def _cut(order: np.ndarray, sizes: Sequence[int], *, batch_tokens: int) -> list[list[int]]:
    batches: list[list[int]] = []
    longest = 0
    for index in order.tolist():
        grown = max(longest, sizes[index])
        if batches and (len(batches[-1]) + 1) * grown <= batch_tokens:
            batches[-1].append(index)
            longest = grown
        else:
            batches.append([index])
            longest = sizes[index]
    return batches


def windows_of_batches(
    sizes: Callable[[np.ndarray], np.ndarray], *, count: int, batch_tokens: int, seed: int, epoch: int
) -> Iterator[list[list[int]]]:
    """Yield the batches of `count` examples that are too many to be sorted at once, or to be read: window after window.

    `sizes` returns the positions of the examples with some indices. Blocks of `BLOCK` examples that follow each other
    are permuted, and `WINDOW` of them are a window, about 65,000 examples, of which `batches_by_size` makes batches.
    What is in memory is one window, and the permutation: 8 bytes a block.
    """
    blocks = np.random.default_rng((seed, epoch, _PERMUTATION)).permutation(-(-count // BLOCK))
    windows = np.array_split(blocks, -(-len(blocks) // WINDOW))
    for place, window in enumerate(windows):
        indices = (window[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        indices = indices[indices < count]
        lengths = sizes(indices).tolist()
        batches = batches_by_size(lengths, batch_tokens=batch_tokens, seed=(seed, epoch * len(windows) + place))
        yield [indices[batch].tolist() for batch in batches]
