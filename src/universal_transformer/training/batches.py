"""The training batches, epoch after epoch, from any batch of any epoch on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch

from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example, sizes
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.typed import Range, typed


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
    ) -> None:
        assert examples
        self._examples, self._device = examples, device
        self._sampler = BucketSampler(sizes(examples), batch_tokens=batch_tokens, seed=seed, shuffle=True)
        self.epoch, self.index = epoch, index
        self._batches = self._sampler.epoch(epoch)
        typed(index, Annotated[int, Range(0, len(self._batches) - 1)], where=f"epoch {epoch}", field="batch")
        self._made: tuple[Batch, int] | None = None

    def current(self) -> tuple[Batch, int]:
        """Return the current batch, on the device, and the number of its targets."""
        if self._made is None:
            indices = self._batches[self.index]
            batch = collate([self._examples[index] for index in indices], indices=indices)
            self._made = batch.to(self._device), batch.num_tokens
        return self._made

    def advance(self) -> None:
        """Move to the next batch, and build it."""
        self.index += 1
        if self.index == len(self._batches):
            self.epoch, self.index = self.epoch + 1, 0
            self._batches = self._sampler.epoch(self.epoch)
        self._made = None
        self.current()
