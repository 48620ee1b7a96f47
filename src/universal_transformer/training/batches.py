"""The training batches, epoch after epoch, from any batch of any epoch on, the parts of each, and their counts.

The batches are those of the whole run, whatever the number of processes is: each example occurs once an epoch. A
process takes every n-th row of each part of a batch. The loss of a part is divided by the counts of the whole batch.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice
from typing import NamedTuple

import numpy as np
import torch

from universal_transformer.axes import Scalar, Tensor
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example, sizes
from universal_transformer.data.sampler import batches_by_size, windows_of_batches
from universal_transformer.evaluation.report import Side
from universal_transformer.models.frame_input import blank_frames, join_blank
from universal_transformer.models.model import Model
from universal_transformer.nn.trace import Trace
from universal_transformer.tasks.lazy import GradedExamples, MappedExamples
from universal_transformer.training.processes import ALONE, Processes

Lengths = Callable[[np.ndarray], np.ndarray]
"""Indices of examples -> their positions (`data.example.size`)."""


@dataclass(frozen=True)
class Part:
    """Rows of a batch that one process computes in one pass."""

    batch: Batch
    weight: float = 1.0
    """0 where the batch has too few rows: then the part is a row that another one has too."""


class PlaceInData(NamedTuple):
    """Where training is in its data."""

    epoch: int = 0
    batch: int = 0
    longest: int | None = None
    """What a curriculum lets in: rows of so many positions, and one more for each further level of the examples; None
    without one."""


BEGINNING = PlaceInData()


class TrainingBatches:
    """The training batches from `start` on; their order is a function of (seed, epoch).

    `epoch`, `index` and `rows`, the number of examples, are those of the current batch of all processes; `parts`, and
    the number of their `targets`, are those of this process. Batches with a row of more than `longest` positions, where
    it is not None, are left out.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        batch_tokens: int,
        seed: int,
        device: torch.device,
        start: PlaceInData = BEGINNING,
        passes: int = 1,
        processes: Processes = ALONE,
    ) -> None:
        assert examples
        self._examples, self._device = examples, device
        self._passes, self._processes = passes, processes
        self._graded = examples if isinstance(examples, GradedExamples) else None
        self.longest, self._lengths = start.longest, _lengths(examples)
        self._windows = _windows(examples, self._lengths, batch_tokens=batch_tokens, seed=seed)
        self._order = islice(self._from_epoch(start.epoch), start.batch, None)
        self.advance()

    def _from_epoch(self, epoch: int) -> Iterator[tuple[int, int, list[int]]]:
        """Yield the epoch, the number and the examples of each batch; windows are made when they are used."""
        for later in count(epoch):
            for index, indices in enumerate(chain.from_iterable(map(self._opened, self._windows(later)))):
                yield later, index, indices

    def _opened(self, window: list[list[int]]) -> list[list[int]]:
        """A window, of which a curriculum lets in the shortest batches at least."""
        if self.longest is not None:
            self.longest = max(self.longest, min(map(self._length, window)))
        return window

    def _length(self, indices: list[int]) -> int:
        return int(self._lengths(np.array(indices)).max())

    def grow(self) -> int:
        """Let batches in whose rows are a tenth longer, and one position at least; return the new `longest`.

        When all are in, each call begins the next level of the examples.
        """
        assert self.longest is not None
        if self.longest < self._most:
            self.longest = min(self._most, self.longest + max(1, self.longest // 10))
        elif self._graded:
            self.longest = min(self._most + self._graded.levels - 1, self.longest + 1)
            self._build()  # as a run builds it that begins here
        return self.longest

    @cached_property
    def _most(self) -> int:
        """Positions of the longest row."""
        return int(self._lengths(np.arange(len(self._examples))).max())

    @property
    def _let_in(self) -> Sequence[Example]:
        """The examples of the level that `longest` says."""
        if self.longest is None or self._graded is None:
            return self._examples
        return self._graded.at(1 + max(0, self.longest - self._most))

    def advance(self) -> None:
        """Move to the next batch."""
        self.epoch, self.index, self._indices = next(self._order)
        while self.longest is not None and self._length(self._indices) > self.longest:
            self.epoch, self.index, self._indices = next(self._order)
        self._build()

    def _build(self) -> None:
        """Build the parts of this process, one a pass, and count their targets."""
        indices = self._indices
        self.rows, size = len(indices), self._processes.size
        passes = min(self._passes, math.ceil(self.rows / size))  # a further one would have no row
        own = [indices[part * size + self._processes.rank :: passes * size] for part in range(passes)]
        parts = [(self._collate(rows or indices[:1]), float(bool(rows))) for rows in own]
        self.targets = sum(batch.num_tokens for batch, weight in parts if weight)
        self.parts = [Part(batch.to(self._device), weight) for batch, weight in parts]

    def _collate(self, indices: list[int]) -> Batch:
        examples = self._let_in
        return collate([examples[index] for index in indices], indices=indices)


def _lengths(examples: Sequence[Example]) -> Lengths:
    return examples.sizes if isinstance(examples, MappedExamples) else np.array(sizes(examples)).__getitem__


def _windows(
    examples: Sequence[Example], lengths: Lengths, *, batch_tokens: int, seed: int
) -> Callable[[int], Iterable[list[list[int]]]]:
    """Return what makes the batches of an epoch, window after window: of examples in memory, all at once."""
    total = len(examples)
    if isinstance(examples, MappedExamples):
        return lambda epoch: windows_of_batches(lengths, count=total, batch_tokens=batch_tokens, seed=seed, epoch=epoch)
    whole = lengths(np.arange(total)).tolist()
    return lambda epoch: [batches_by_size(whole, batch_tokens=batch_tokens, seed=(seed, epoch))]


@dataclass(frozen=True)
class Counts:
    """What one of the parts is divided by: the number of the whole batch, over the number of processes.

    The gradient of a run is the mean over processes, so that the sum of the parts is divided by the number of the whole
    batch.
    """

    targets: Scalar
    """Targets (tokens, frames) that are not padding."""
    positions: dict[Side, Scalar]
    """Real positions of encoder and decoder."""
    sequences: Scalar | None = None
    """Sequences, of a model whose ponder cost is a mean over them."""

    def ponder_cost(self, traces: Mapping[Side, Trace]) -> Scalar:
        """Return the share of a part in the ponder cost (`ModelOutput.ponder_cost`)."""
        shares = {side: trace.num_positions() / self.positions[side] for side, trace in traces.items()}
        if self.sequences is not None:
            shares = {side: len(trace.steps) / self.sequences for side, trace in traces.items()}
        terms = [trace.ponder_cost * shares[side] for side, trace in traces.items()]
        return sum(terms, self.targets.new_zeros(()))

    def mean_steps(self, traces: Mapping[Side, Trace]) -> Scalar:
        """Return the share of a part in the mean number of steps of these sides."""
        made = sum((trace.steps.sum() for trace in traces.values()), self.targets.new_zeros(()))
        return made / sum((self.positions[side] for side in traces), self.targets.new_zeros(())).clamp(min=1e-9)


def counts_of(model: Model, parts: Sequence[Part], *, processes: Processes) -> Counts:
    """Return the counts of a batch from its parts in all processes."""
    found = torch.stack([_count(model, part.batch) * part.weight for part in parts]).sum(0)
    targets, encoder, decoder, sequences = (processes.sum(found) / processes.size).clamp(min=1e-9)
    by_sequence = sequences if _ponders_by_sequence(model) else None
    return Counts(targets, {"encoder": encoder, "decoder": decoder}, by_sequence)


def _ponders_by_sequence(model: Model) -> bool:
    """Return whether the ponder cost is a mean over sequences, whose positions stop together (`PonderNet.cost`).

    In evaluation, where a halting unit is trained alone, it is a mean over positions.
    """
    config = model.config
    together = config.architecture == "classifier" or config.halting.scope == "sequence"
    return bool(model.training and config.expects_loss and together)


def _count(model: Model, batch: Batch) -> Tensor:
    """Return the number of targets, of real positions of encoder and decoder, and of sequences."""
    config = model.config
    if frames := batch.target.is_floating_point():
        targets = ~blank_frames(batch.target)
    else:
        targets = batch.target != batch.ignored
    counted = config.ponders_padding
    encoder = decoder = targets.new_zeros((1,))
    if config.max_steps and config.reads and batch.source is not None:
        encoder = model.source.input.padding(batch.source).logical_not() | counted
    if frames:
        decoder = ~join_blank(~targets, stride=config.outputs.stride)
    elif config.decodes:
        decoder = targets | counted
    sequences = targets.new_ones(len(targets))
    return torch.stack([each.sum() for each in (targets, encoder, decoder, sequences)]).double()
