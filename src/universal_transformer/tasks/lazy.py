"""Examples that are made when they are asked for, and not kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import overload

from universal_transformer.data.example import Example


class LazyExamples(Sequence[Example]):
    """A sequence whose subclass says its length, and makes the example of an index."""

    @abstractmethod
    def make(self, index: int) -> Example:
        """Make the example of an index from 0 on."""

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        """Make one example, or a list of several."""
        if isinstance(index, slice):
            return [self.make(place) for place in range(len(self))[index]]
        return self.make(range(len(self))[index])


class GeneratedExamples(LazyExamples):
    """`count` examples; `generate` is a function of the index alone."""

    def __init__(self, generate: Callable[[int], Example], *, count: int) -> None:
        self._generate = generate
        self._count = count

    def __len__(self) -> int:
        """The number of examples."""
        return self._count

    def make(self, index: int) -> Example:
        """Generate one example."""
        return self._generate(index)
