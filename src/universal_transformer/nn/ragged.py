"""Attention of some positions of a batch: queries of the running rows only, over all keys of their own sequences."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch.nn.attention.flex_attention import BlockMask

from universal_transformer.axes import Bool, Float, Int, Tensor
from universal_transformer.nn import flex
from universal_transformer.nn.attention import attend

Rows = Float[Tensor, "row width"]
Keys = Float[Tensor, "batch heads key head"]
Mask = Bool[Tensor, "batch 1 1 key"]

LONG = 256
"""Keys from which on a CPU attends to sequences one by one rather than pads them to the one with most queries."""
FEW = 3
"""Sequences with queries up to which it does so whatever their length."""


def find(marked: Bool[Tensor, "row"], *, count: int) -> Int[Tensor, "count"]:
    """Indices of the ``count`` rows that are marked; a GPU is not waited for."""
    return torch.nonzero_static(marked, size=count).squeeze(1)


@dataclass(frozen=True)
class Layout:
    """Which positions of a batch run: flat indices ``batch * length + position`` in order, and how many a sequence.

    ``stored`` keys of each sequence stand in front of those of the positions. ``flexes``: a GPU attends to all
    sequences at once rather than pads them (``nn/flex.py``).
    """

    index: Int[Tensor, "row"]
    counts: tuple[int, ...]
    length: int
    stored: int = 0
    flexes: bool = False

    @classmethod
    def of(
        cls,
        running: Bool[Tensor, "batch position"],
        *,
        counts: list[int],
        stored: int = 0,
        flexes: bool = False,
    ) -> "Layout":
        """The layout of the positions that run, ``counts`` of each sequence."""
        index = find(running.flatten(), count=sum(counts))
        return cls(index, tuple(counts), running.shape[1], stored, flexes)

    @cached_property
    def sequence(self) -> Int[Tensor, "row"]:
        """Whose positions they are."""
        return self.index.div(self.length, rounding_mode="floor")

    @cached_property
    def _seen(self) -> list[tuple[Mask | None, int, bool, BlockMask]]:
        """Which keys are seen, for each mask, number of keys and kind of attention asked for so far."""
        return []

    def choose(self, staying: Bool[Tensor, "row"]) -> tuple["Layout", Int[Tensor, "kept"]]:
        """The layout of the rows that stay, and their numbers among these; reads from a GPU once."""
        if len(self.counts) == 1:
            kept = staying.nonzero().squeeze(1)
            counts: tuple[int, ...] = (len(kept),)
        else:
            left = self.index.new_zeros(len(self.counts)).index_add_(0, self.sequence, staying.long())
            counts = tuple(left.tolist())
            kept = find(staying, count=sum(counts))
        if len(kept) == len(self.index):
            return self, kept
        return replace(self, index=self.index.index_select(0, kept), counts=counts), kept

    def attend(
        self,
        query: Rows,
        keys: Keys,
        values: Keys,
        *,
        mask: Mask | None,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> Rows:
        """Attention of each running row over the keys of its own sequence.

        ``mask``: keys that may be seen. ``causal``: none behind the row's own position.
        """
        active = len(self.counts) - self.counts.count(0)
        if self.flexes and active > 1 and flex.serves(query, keys, sequences=active, dropout=dropout):
            seen = self._blocks(keys.shape[2], mask=mask, causal=causal)
            return flex.attend(query, keys, values, seen=seen)
        apart = query.device.type == "cpu" and (keys.shape[2] >= LONG or active <= FEW)
        if active == 1 or apart:
            return self._one_by_one(query, keys, values, mask=mask, causal=causal, dropout=dropout)
        return self._padded(query, keys, values, mask=mask, causal=causal, dropout=dropout)

    def _blocks(self, keys: int, *, mask: Mask | None, causal: bool) -> BlockMask:
        """What each row sees of ``keys`` keys a sequence; made once."""
        for known, many, ahead, found in self._seen:
            if known is mask and (many, ahead) == (keys, causal):
                return found
        position = self.index % self.length + self.stored if causal else None
        first, last = flex.spans(self.sequence, position, keys=keys, mask=mask)
        visible = None if mask is None else mask.flatten()
        found = flex.blocks(first, last, keys=len(self.counts) * keys, visible=visible)
        self._seen.append((mask, keys, causal, found))
        return found

    def _one_by_one(
        self,
        query: Rows,
        keys: Keys,
        values: Keys,
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
            asked = query[first : first + count].view(1, count, heads, head).transpose(1, 2)
            visible = None if mask is None else mask[row : row + 1]
            if causal:
                position = self.index[first : first + count] - row * self.length + self.stored
                seen = _earlier(position, keys.shape[2])
                visible = seen if visible is None else visible & seen
            result = attend(asked, keys[row : row + 1], values[row : row + 1], mask=visible, dropout=dropout)
            results.append(result.transpose(1, 2).reshape(count, -1))
            first += count
        return results[0] if len(results) == 1 else torch.cat(results)

    def _padded(
        self,
        query: Rows,
        keys: Keys,
        values: Keys,
        *,
        mask: Mask | None,
        causal: bool,
        dropout: float,
    ) -> Rows:
        """Every sequence with as many queries as the one that has most; the queries it lacks are 0."""
        rows, most, width = len(self.counts), max(self.counts), query.shape[1]
        slot = None
        if rows * most > len(query):
            slot = self._slots(most)
            query = query.new_zeros(rows * most, width).index_copy(0, slot, query)
        visible: Tensor | None = mask
        if causal:
            position = self.index % self.length + self.stored
            if slot is not None:
                position = position.new_zeros(rows * most).index_copy(0, slot, position)
            seen = _earlier(position.view(rows, most), keys.shape[2]).unsqueeze(1)
            visible = seen if mask is None else mask & seen
        asked = query.view(rows, most, keys.shape[1], keys.shape[3]).transpose(1, 2)
        result = attend(asked, keys, values, mask=visible, dropout=dropout)
        flat = result.transpose(1, 2).reshape(rows * most, width)
        return flat if slot is None else flat.index_select(0, slot)

    def _slots(self, most: int) -> Int[Tensor, "row"]:
        """Where rows stand when each sequence is given ``most`` places."""
        rank = torch.arange(len(self.index), device=self.index.device)
        counts = self.index.new_zeros(len(self.counts)).index_add_(0, self.sequence, torch.ones_like(rank))
        missing = most * torch.arange(len(self.counts), device=rank.device) - (counts.cumsum(0) - counts)
        return rank + missing[self.sequence]


def _earlier(position: Int[Tensor, "*rows"], keys: int) -> Bool[Tensor, "*rows key"]:
    """Keys that stand no later than each position."""
    return torch.arange(keys, device=position.device) <= position.unsqueeze(-1)
