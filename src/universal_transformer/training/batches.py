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
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.training.processes import ALONE, Processes
from universal_transformer.typed import Range, typed


@dataclass(frozen=True)
class Part:
    """Rows of a batch that one process computes in one pass."""

    batch: Batch
    weight: float = 1.0
    """0 where the batch has too few rows: then the part is a row that another one has too."""


class TrainingBatches:
    """The training batches from batch `index` of epoch `epoch` on; the order is a function of (seed, epoch)."""

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        batch_tokens: int,
        seed: int,
        device: torch.device,
        epoch: int = 0,
        index: int = 0,
        passes: int = 1,
        processes: Processes = ALONE,
    ) -> None:
        assert examples
        self._examples, self._device = examples, device
        self._passes, self._processes = passes, processes
        self._sampler = BucketSampler(sizes(examples), batch_tokens=batch_tokens, seed=seed, shuffle=True)
        self.epoch, self.index = epoch, index
        self._batches = self._sampler.epoch(epoch)
        typed(index, Annotated[int, Range(0, len(self._batches) - 1)], where=f"epoch {epoch}", field="batch")
        self._made: tuple[list[Part], int] | None = None

    @property
    def rows(self) -> int:
        """Number of examples of the current batch, in all processes."""
        return len(self._batches[self.index])

    def current(self) -> tuple[list[Part], int]:
        """Return the parts of the current batch of this process, one a pass, and the number of their targets."""
        if self._made is None:
            indices, size = self._batches[self.index], self._processes.size
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
        if self.index == len(self._batches):
            self.epoch, self.index = self.epoch + 1, 0
            self._batches = self._sampler.epoch(self.epoch)
        self._made = None
        self.current()
