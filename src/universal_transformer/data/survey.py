"""One look at all lines or rows of a source: how many they are, a sample of them, and the last ones."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

SAMPLE = 32_000_000
"""Characters of the sample that a tokenizer is learned from."""
TAIL = 2_000_000
"""Characters of the last items that are kept."""
TOGETHER = 500_000
"""Characters of items that are encoded at once."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Survey(Generic[Item]):
    """What is known of items that were seen once."""

    count: int
    characters: int
    sample: list[Item]
    """Every `stride`-th item, with the smallest power of two for which they have at most `SAMPLE` characters."""
    stride: int
    tail: list[Item]
    """The last items, of at most `TAIL` characters."""


def survey(items: Iterable[Item], *, size: Callable[[Item], int], whole: bool = False) -> Survey[Item]:
    """Look at all items; `size` returns the characters of one. The memory is that of sample and tail.

    Of a `whole` source, which fits in memory, both are all items.
    """
    if whole:
        everything = list(items)
        return Survey(len(everything), sum(map(size, everything)), everything, 1, everything)
    count = characters = sampled = kept = 0
    stride = 1
    sample: list[Item] = []
    tail: deque[Item] = deque()
    for item in items:
        length = size(item)
        if count % stride == 0:
            sample.append(item)
            sampled += length
            while sampled > SAMPLE and len(sample) > 1:
                sample, stride = sample[::2], 2 * stride
                sampled = sum(map(size, sample))
        tail.append(item)
        kept += length
        while kept > TAIL:
            kept -= size(tail.popleft())
        count += 1
        characters += length
    return Survey(count, characters, sample, stride, list(tail))


def batches(items: Iterable[Item], *, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield items that follow each other in lists of at most `TOGETHER` characters, or of one item."""
    batch: list[Item] = []
    total = 0
    for item in items:
        length = size(item)
        if batch and total + length > TOGETHER:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += length
    if batch:
        yield batch
