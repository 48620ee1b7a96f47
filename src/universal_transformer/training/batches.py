"""The training batches, epoch after epoch, from any batch of any epoch on, and the parts of each.

The batches are those of the whole run, whatever the number of processes is: each example occurs once an epoch. A
process takes every n-th row of each part of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example, sizes
from universal_transformer.data.sampler import BucketSampler, WindowSampler
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.typed import Range, typed


@dataclass(frozen=True)
class Part:
    """Rows of a batch that one process computes in one pass."""

    batch: Batch
    weight: float = 1.0
    """0 where the batch has too few rows: then the part is a row that another one has too."""


class TrainingBatches:
    """The training batches from `start`, an epoch and a batch of it, on; the order is a function of (seed, epoch)."""

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        batch_tokens: int,
        seed: int,
        device: torch.device,
        start: tuple[int, int] = (0, 0),
        passes: int = 1,
        processes: Processes = ALONE,
    ) -> None:
        assert examples
        epoch, index = start
        self._examples, self._device = examples, device
        self._passes, self._processes = passes, processes
        self._sampler = _sampler(examples, batch_tokens=batch_tokens, seed=seed)
        self._begin(epoch)
        while index >= self._end and self._next_window():
            pass
        typed(index, Annotated[int, Range(0, self._end - 1)], where=f"epoch {epoch}", field="batch")
        self.index = index
        self._made: tuple[list[Part], int] | None = None

    def _begin(self, epoch: int) -> None:
        """Move to the first batch of an epoch."""
        self.epoch, self.index = epoch, 0
        self._windows = self._sampler.windows(epoch)
        self._window, self._first = next(self._windows), 0

    def _next_window(self) -> bool:
        """Take the next batches of the epoch; return whether there are any."""
        window = next(self._windows, None)
        if window is not None:
            self._window, self._first = window, self._end
        return window is not None

    @property
    def _end(self) -> int:
        """Number of the first batch after the window."""
        return self._first + len(self._window)

    @property
    def _indices(self) -> list[int]:
        return self._window[self.index - self._first]

    @property
    def rows(self) -> int:
        """Number of examples of the current batch, in all processes."""
        return len(self._indices)

    def current(self) -> tuple[list[Part], int]:
        """Return the parts of the current batch of this process, one a pass, and the number of their targets."""
        if self._made is None:
            indices, size = self._indices, self._processes.size
            own = [indices[part * size + self._processes.rank :: self._passes * size] for part in range(self._passes)]
            parts = [(self._collate(rows or indices[:1]), float(bool(rows))) for rows in own]
            targets = sum(batch.num_tokens for batch, weight in parts if weight)
            self._made = [Part(batch.to(self._device), weight) for batch, weight in parts], targets
        return self._made

    def _collate(self, indices: list[int]) -> Batch:
        return collate([self._examples[index] for index in indices], indices=indices)

    def advance(self) -> None:
        """Move to the next batch, and build it."""
        self.index += 1
        if self.index == self._end and not self._next_window():
            self._begin(self.epoch + 1)
        self._made = None
        self.current()


def _sampler(examples: Sequence[Example], *, batch_tokens: int, seed: int) -> BucketSampler | WindowSampler:
    if isinstance(examples, MappedExamples):
        return WindowSampler(examples.sizes, count=len(examples), batch_tokens=batch_tokens, seed=seed)
    return BucketSampler(sizes(examples), batch_tokens=batch_tokens, seed=seed, shuffle=True)
