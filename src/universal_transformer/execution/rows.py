"""Rows: positions that still run, where they stand in a batch, and their attention over their own sequences."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from universal_transformer.axes import Bool, Float, Index, Int, PerRow, Rows, States, Tensor
from universal_transformer.nn.attention import CrossAttention, SelfAttention, attend
from universal_transformer.nn.context import Context, PositionEncoding
from universal_transformer.nn.halting import Progress

BatchKeys = Float[Tensor, "batch key_heads key head"]
Mask = Bool[Tensor, "batch 1 1 key"]
Angles = Float[Tensor, "2 row half"]
"""Cosines and sines of rotary positions, one for each row."""


def indices_of(marked: Bool[Tensor, "row"], *, count: int) -> Int[Tensor, "count"]:
    """Indices of the ``count`` rows that are marked, without a device synchronisation."""
    return torch.nonzero_static(marked, size=count).squeeze(1)


def rotate_rows(states: Rows, angles: Angles | None, *, num_heads: int) -> Rows:
    """Rotate each head of each row by the angles of the row, as `models/positions/rotary.py` does with a batch."""
    assert angles is not None, "rotary queries and keys need their positions"
    cosine, sine = angles.to(states.dtype).unsqueeze(2)
    first, second = states.view(len(states), num_heads, -1).chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).flatten(1)


def rows_of(now: Progress, take: Callable[[Tensor], Tensor]) -> Progress:
    """The rows that ``take`` makes of what each position has. All of them run."""
    names = ("states", "output", "steps", "halted", "remainder", "shown")
    parts: dict[str, Any] = {name: take(part) for name in names if (part := getattr(now, name)) is not None}
    parts |= {"running": None, "inputs": (), "memory": tuple(map(take, now.memory))}
    return now._replace(**parts)


def choose(now: Progress, kept: Index) -> Progress:
    """Only the rows ``kept``."""
    return rows_of(now, lambda part: part.index_select(0, kept))


@dataclass(frozen=True)
class BatchLayout:
    """Where rows stand in a batch: flat indices ``sequence * length + position`` in order, and the number of rows in
    each sequence, on the host.

    A cache holds ``stored`` keys of each sequence before those of the positions.
    """

    index: Int[Tensor, "row"]
    counts: tuple[int, ...]
    length: int
    stored: int = 0

    @cached_property
    def sequence(self) -> Int[Tensor, "row"]:
        """The sequence of each row."""
        return self.index.div(self.length, rounding_mode="floor")

    @cached_property
    def position(self) -> Int[Tensor, "row"]:
        """The position of each row in its sequence, after the stored ones."""
        position = self.index if len(self.counts) == 1 else self.index % self.length
        return position + self.stored if self.stored else position

    @cached_property
    def place(self) -> Int[Tensor, "row"] | None:
        """Where rows stand when all sequences have as many as the one with most; None where all have."""
        batch, most = len(self.counts), max(self.counts)
        if batch * most == len(self.index):
            return None
        rank = torch.arange(len(self.index), device=self.index.device)
        counts = self.index.new_zeros(batch).index_add_(0, self.sequence, torch.ones_like(rank))
        missing = most * torch.arange(batch, device=rank.device) - (counts.cumsum(0) - counts)
        return rank + missing[self.sequence]

    def divide(self, staying: Bool[Tensor, "row"]) -> tuple[tuple[int, ...], Int[Tensor, "row"]]:
        """How many rows of each sequence stay, and the numbers of all rows: first of those that stay, in order."""
        if len(self.counts) == 1:
            counts: tuple[int, ...] = (int(staying.sum()),)
        else:
            left = self.index.new_zeros(len(self.counts)).index_add_(0, self.sequence, staying.long())
            counts = tuple(left.tolist())
        return counts, torch.argsort(staying, descending=True, stable=True)

    def encoding(self, whole: PositionEncoding) -> PositionEncoding:
        """The position, the signal and the angles of each row; one sequence may serve the whole batch."""
        signal, rotary = whole.signal, whole.rotary
        if signal is not None:
            index = self.index if len(signal) == len(self.counts) else self.index % self.length
            signal = signal.flatten(0, 1).index_select(0, index)
        if rotary is not None:
            index = self.index if rotary.shape[1] == len(self.counts) else self.index % self.length
            rotary = rotary.flatten(1, 3).index_select(1, index)
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
        """Attention of each row over the keys of its own sequence. Queries of each sequence are padded with zeros to
        the sequence that has most of them.

        ``mask``: keys that may be attended to. ``causal``: none after the row's own position.
        """
        batch, most, place = len(self.counts), max(self.counts), self.place
        if place is not None:
            query = query.new_zeros(batch * most, query.shape[1]).index_copy(0, place, query)
        visible: Tensor | None = mask
        if causal:
            position = self.position
            if place is not None:
                position = position.new_zeros(batch * most).index_copy(0, place, position)
            earlier = torch.arange(keys.shape[2], device=query.device) <= position.view(batch, 1, most, 1)
            visible = earlier if mask is None else mask & earlier
        queries = query.view(batch, most, -1, keys.shape[3]).transpose(1, 2)
        mixed = attend(queries, keys, values, mask=visible, dropout=dropout).transpose(1, 2).reshape(query.shape)
        return mixed if place is None else mixed.index_select(0, place)


@dataclass(frozen=True)
class Alone:
    """Rows of which no two are in the same sequence."""

    sequence: Index
    position: Index

    def mean(self, values: PerRow) -> PerRow:
        """A row is alone."""
        return values

    def apply(self, function: Callable[[States], Tensor], states: Rows) -> Float[Tensor, "row classes"]:
        """A row is alone."""
        return function(states.unsqueeze(1))

    def attend(
        self, query: Rows, keys: BatchKeys, values: BatchKeys, *, mask: Mask | None, dropout: float = 0.0
    ) -> Rows:
        """Attention of each row over keys of its own."""
        queries = query.view(len(query), -1, 1, keys.shape[3])
        return attend(queries, keys, values, mask=mask, dropout=dropout).flatten(1)


class Changed(NamedTuple):
    """Rows whose states are new (None: all of a batch), and ``b = h + π`` of these."""

    rows: Index | None
    base: Rows


@runtime_checkable
class Store(Protocol):
    """Keys and values that the rows of a block attend to."""

    def attend(self, states: Rows, at: "StepOfRows", *, seen: Rows | None) -> Rows:
        """Self-attention of the rows at a step; ``seen``: what others see of them, where it is not ``states``."""


class StepOfRows(NamedTuple):
    """The attention of rows at a step: :class:`~universal_transformer.nn.context.RowAttention`.

    ``context``: that of the call. ``step``: of all rows, or of each. ``angles``: of rotary positions.
    """

    context: Context
    layout: BatchLayout | Alone
    stores: Mapping[nn.Module, Store]
    step: int | Index
    angles: Angles | None
    changed: Changed | None = None

    def attend(self, attention: SelfAttention, states: Rows, *, seen: Rows | None, slot: int | Index) -> Rows:
        """Self-attention of each row over its sequence."""
        del slot
        return self.stores[attention].attend(states, self, seen=seen)

    def attend_source(self, attention: CrossAttention, states: Rows, *, layer: int) -> Rows:
        """Attention of each row to the source of its sequence."""
        assert self.context.source is not None
        query, (key, value, mask) = attention.query(states), self.context.source[layer]
        if attention.rotates:
            query = rotate_rows(query, self.angles, num_heads=attention.num_heads)
        mixed = self.layout.attend(query, key, value, mask=mask, dropout=attention.active_dropout)
        return attention.output(mixed)
