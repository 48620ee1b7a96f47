"""Examples that are made one by one when they are asked for, mapped from disk, or read as a whole when the first is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import overload

import numpy as np

from universal_transformer.data.example import Example


class LazyExamples(Sequence[Example]):
    """`count` examples; `make` is a function of the index alone, from 0 on."""

    def __init__(self, make: Callable[[int], Example], *, count: int) -> None:
        self._make = make
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self._make(place) for place in range(self._count)[index]]
        return self._make(range(self._count)[index])


class GradedExamples(LazyExamples):
    """Examples of the last level, and easier ones for a curriculum: `make` is a function of the index and the level."""

    def __init__(self, make: Callable[[int, int], Example], *, count: int, levels: int) -> None:
        super().__init__(lambda index: make(index, levels), count=count)
        self._graded, self.levels = make, levels

    def at(self, level: int) -> LazyExamples:
        """The examples of a level."""
        return LazyExamples(lambda index: self._graded(index, level), count=len(self))


class MappedExamples(LazyExamples):
    """Examples of tokens on disk: too many to look at all of them for a figure about them."""

    def __init__(
        self,
        make: Callable[[int], Example],
        *,
        count: int,
        sizes: Callable[[np.ndarray], np.ndarray],
        digest: str,
        longest_target: int,
    ) -> None:
        super().__init__(make, count=count)
        self.sizes = sizes
        """Returns `data.example.size` of the examples with these indices, without making them."""
        self.digest = digest
        """A text that changes with any id of any example."""
        self.longest_target = longest_target


class DeferredExamples(Sequence):
    """The examples that `read` returns, which is called when they are first needed."""

    def __init__(self, read: Callable[[], Sequence[Example]]) -> None:
        self._read = read

    @cached_property
    def _examples(self) -> Sequence[Example]:
        return self._read()

    def __len__(self) -> int:
        return len(self._examples)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        return self._examples[index]


Examples = DeferredExamples | Sequence[Example]
"""Examples that may not have been read yet: to check the type of an item would read them."""
