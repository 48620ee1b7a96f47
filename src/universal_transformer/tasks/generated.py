"""Training examples that are made when asked for."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol, overload, runtime_checkable

from universal_transformer.data.example import Example


@runtime_checkable
class Maker(Protocol):
    """The fields of a task that can make its examples one by one."""

    @property
    def train_examples(self) -> int:
        """Training examples in an epoch."""

    def training_example(self, index: int, held_out: Set[str]) -> Example:
        """Make the example of this index: a function of the task's fields and the arguments alone."""


@dataclass(frozen=True)
class GeneratedExamples(Sequence[Example]):
    """A sequence of training examples that are not kept: each a function of the data's fields and its index alone."""

    data: Maker
    held_out: Set[str]
    """What is tested or validated on, and so never trained on."""

    def __len__(self) -> int:
        return self.data.train_examples

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        """Make the example, or a list of them."""
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        return self.data.training_example(range(len(self))[index], self.held_out)


__all__ = ["GeneratedExamples", "Maker"]
