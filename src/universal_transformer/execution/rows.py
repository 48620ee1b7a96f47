"""Rows: positions that still run, where they stand in a batch, and their attention over their own sequences."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from universal_transformer.axes import Bool, Float, Index, Int, PerRow, Rows, States, Tensor
from universal_transformer.execution import policy
from universal_transformer.execution.kernels import attend
from universal_transformer.nn.context import PositionEncoding

BatchKeys = Float[Tensor, "batch heads key head"]
Mask = Bool[Tensor, "batch 1 1 key"]
Angles = Float[Tensor, "2 row half"]
"""Cosines and sines of rotary positions, one for each row."""


def angles_at(rotary: Float[Tensor, "2 rows 1 position half"], index: Index, *, batch: int) -> Angles:
    """The angles of positions with the flat indices ``index`` in a batch."""
    rows, length = rotary.shape[1], rotary.shape[3]
    return rotary.flatten(1, 3).index_select(1, index if rows == batch else index % length)


def indices_of(marked: Bool[Tensor, "row"], *, count: int) -> Int[Tensor, "count"]:
    """Indices of the ``count`` rows that are marked, without a device synchronisation."""
    return torch.nonzero_static(marked, size=count).squeeze(1)


def rotate_rows(states: Rows, angles: Angles, *, num_heads: int) -> Rows:
    """Rotate each head of each row by the angles of the row: ``nn.coordinates.rotate`` for rows."""
    cosine, sine = angles.to(states.dtype).unsqueeze(2)
    first, second = states.view(len(states), num_heads, -1).chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).flatten(1)


@dataclass(frozen=True)
class BatchLayout:
    """Where the running positions of a batch stand: flat indices ``sequence * length + position`` in order, and the
    number of them in each sequence, on the host.

    A cache holds ``stored`` keys of each sequence before those of the positions.
    """

    index: Int[Tensor, "row"]
    counts: tuple[int, ...]
    length: int
    stored: int = 0

    @classmethod
    def of(cls, running: Bool[Tensor, "batch position"], *, counts: list[int], stored: int = 0) -> "BatchLayout":
        """The layout of the positions that run, ``counts`` of each sequence."""
        index = indices_of(running.flatten(), count=sum(counts))
        return cls(index, tuple(counts), running.shape[1], stored)

    @cached_property
    def sequence(self) -> Int[Tensor, "row"]:
        """The sequence of each row."""
        return self.index.div(self.length, rounding_mode="floor")

    @cached_property
    def position(self) -> Int[Tensor, "row"]:
        """The position of each row in its sequence, after the stored ones."""
        return self.index % self.length + self.stored

    def choose(self, staying: Bool[Tensor, "row"]) -> tuple["BatchLayout", Int[Tensor, "kept"]]:
        """The layout of the rows that stay, and their numbers among these; one device synchronisation."""
        if len(self.counts) == 1:
            kept = staying.nonzero().squeeze(1)
            counts: tuple[int, ...] = (len(kept),)
        else:
            left = self.index.new_zeros(len(self.counts)).index_add_(0, self.sequence, staying.long())
            counts = tuple(left.tolist())
            kept = indices_of(staying, count=sum(counts))
        if len(kept) == len(self.index):
            return self, kept
        return replace(self, index=self.index.index_select(0, kept), counts=counts), kept

    def encoding(self, whole: PositionEncoding) -> PositionEncoding:
        """The position, the signal and the angles of each row; one sequence may serve the whole batch."""
        batch, signal, rotary = len(self.counts), whole.signal, whole.rotary
        if signal is not None:
            signal = signal.flatten(0, 1).index_select(
                0, self.index if len(signal) == batch else self.index % self.length
            )
        if rotary is not None:
            rotary = angles_at(rotary, self.index, batch=batch)
        return PositionEncoding(self.position, signal, rotary)

    def mean(self, values: PerRow) -> PerRow:
        """The mean over the rows of each sequence, for every row."""
        empty = values.new_zeros(len(self.counts))
        total, count = (empty.index_add(0, self.sequence, part) for part in (values, torch.ones_like(values)))
        return (total / count.clamp(min=1)).index_select(0, self.sequence)

    def apply(self, function: Callable[[States], Tensor], states: Rows) -> Float[Tensor, "row classes"]:
        """``function`` of the states of each sequence, for every row; of the positions without a row they are 0."""
        whole = states.new_zeros(len(self.counts) * self.length, states.shape[1]).index_copy(0, self.index, states)
        return function(whole.view(len(self.counts), self.length, -1)).index_select(0, self.sequence)

    def attend(
        self,
        query: Rows,
        keys: BatchKeys,
        values: BatchKeys,
        *,
        mask: Mask | None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> Rows:
        """Attention of each row over the keys of its own sequence.

        ``mask``: keys that may be attended to. ``causal``: none after the row's own position.
        """
        active = len(self.counts) - self.counts.count(0)
        pays = keys.shape[2] >= policy.SEPARATE_FROM_KEYS or active <= policy.SEPARATE_UP_TO
        separate = query.device.type == "cpu" and pays
        compute = self._one_by_one if active == 1 or separate else self._padded
        return compute(query, keys, values, mask=mask, causal=causal, dropout=dropout)

    def _one_by_one(
        self,
        query: Rows,
        keys: BatchKeys,
        values: BatchKeys,
        *,
        mask: Mask | None,
        causal: bool,
        dropout: float,
    ) -> Rows:
        results, first = list[Tensor](), 0
        heads, head = keys.shape[1], keys.shape[3]
        for row, count in enumerate(self.counts):
            if not count:
                continue
            queries = query[first : first + count].view(1, count, heads, head).transpose(1, 2)
            visible = None if mask is None else mask[row : row + 1]
            if causal:
                position = self.position[first : first + count]
                earlier = _earlier(position, keys.shape[2])
                visible = earlier if visible is None else visible & earlier
            result = attend(queries, keys[row : row + 1], values[row : row + 1], mask=visible, dropout=dropout)
            results.append(result.transpose(1, 2).reshape(count, -1))
            first += count
        return results[0] if len(results) == 1 else torch.cat(results)

    def _padded(
        self,
        query: Rows,
        keys: BatchKeys,
        values: BatchKeys,
        *,
        mask: Mask | None,
        causal: bool,
        dropout: float,
    ) -> Rows:
        """Queries of each sequence are padded with zeros to the sequence that has most of them."""
        rows, most, width = len(self.counts), max(self.counts), query.shape[1]
        slot = None
        if rows * most > len(query):
            slot = self._slots(most)
            query = query.new_zeros(rows * most, width).index_copy(0, slot, query)
        visible: Tensor | None = mask
        if causal:
            position = self.position
            if slot is not None:
                position = position.new_zeros(rows * most).index_copy(0, slot, position)
            earlier = _earlier(position.view(rows, most), keys.shape[2]).unsqueeze(1)
            visible = earlier if mask is None else mask & earlier
        queries = query.view(rows, most, keys.shape[1], keys.shape[3]).transpose(1, 2)
        result = attend(queries, keys, values, mask=visible, dropout=dropout)
        flat = result.transpose(1, 2).reshape(rows * most, width)
        return flat if slot is None else flat.index_select(0, slot)

    def _slots(self, most: int) -> Int[Tensor, "row"]:
        """Where rows stand when each sequence has ``most`` rows."""
        rank = torch.arange(len(self.index), device=self.index.device)
        counts = self.index.new_zeros(len(self.counts)).index_add_(0, self.sequence, torch.ones_like(rank))
        missing = most * torch.arange(len(self.counts), device=rank.device) - (counts.cumsum(0) - counts)
        return rank + missing[self.sequence]


def _earlier(position: Int[Tensor, "*rows"], keys: int) -> Bool[Tensor, "*rows key"]:
    """Keys that stand no later than each position."""
    return torch.arange(keys, device=position.device) <= position.unsqueeze(-1)
