"""Examples that are made when they are asked for, and not kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

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
