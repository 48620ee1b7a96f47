"""Examples that are made when asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol, overload, runtime_checkable

from universal_transformer.data.example import Example


class MadeExamples(Sequence[Example]):
    """Examples that are not kept: `make` makes the one of a place, counted from 0."""

    @abstractmethod
    def make(self, place: int) -> Example:
        """Make one example."""

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        """Make an example, or a list of some."""
        if isinstance(index, slice):
            return [self.make(place) for place in range(len(self))[index]]
        return self.make(range(len(self))[index])


@runtime_checkable
class Maker(Protocol):
    """The fields of a task that can make its examples one by one."""

    @property
    def train_examples(self) -> int:
        """Training examples in an epoch."""

    def training_example(self, index: int, held_out: Set[str]) -> Example:
        """Make the example of this index: a function of the task's fields and the arguments alone."""


@dataclass(frozen=True)
class GeneratedExamples(MadeExamples):
    """Training examples, each a function of the data's fields and its index alone."""

    data: Maker
    held_out: Set[str]
    """What is tested or validated on, and so never trained on."""

    def __len__(self) -> int:
        return self.data.train_examples

    def make(self, place: int) -> Example:
        """Make one example."""
        return self.data.training_example(place, self.held_out)
