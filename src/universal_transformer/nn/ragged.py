"""Attention of some positions of a batch: queries of the running rows only, over all keys of their own sequences."""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from universal_transformer.axes import Bool, Float, Int, Tensor

Rows = Float[Tensor, "row width"]
Keys = Float[Tensor, "batch heads key head"]
Mask = Bool[Tensor, "batch 1 1 key"]

LONG = 256
"""Keys from which on sequences are attended to one by one rather than padded to the one with most queries."""


@dataclass(frozen=True)
class Layout:
    """Which positions of a batch run: flat indices ``batch * length + position`` in order, and how many a sequence.

    ``stored`` keys of each sequence stand in front of those of the positions.
    """

    index: Int[Tensor, "row"]
    length: int
    counts: tuple[int, ...]
    stored: int = 0

    @classmethod
    def of(cls, index: Int[Tensor, "row"], *, batch: int, length: int, stored: int = 0) -> "Layout":
        """The layout of ``index``. Reading the counts is the one time a step that a GPU is waited for."""
        if batch == 1:
            return cls(index, length, (len(index),), stored)
        sequence = index.div(length, rounding_mode="floor")
        return cls(index, length, tuple(sequence.bincount(minlength=batch).tolist()), stored)

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
        active = [row for row, count in enumerate(self.counts) if count]
        if len(active) == 1 or keys.shape[2] >= LONG:
            return self._one_by_one(query, keys, values, mask=mask, causal=causal, dropout=dropout)
        return self._padded(query, keys, values, active=active, mask=mask, causal=causal, dropout=dropout)

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
                seen = _seen(position, keys.shape[2])
                visible = seen if visible is None else visible & seen
            result = scaled_dot_product_attention(
                asked, keys[row : row + 1], values[row : row + 1], attn_mask=visible, dropout_p=dropout
            )
            results.append(result.transpose(1, 2).reshape(count, -1))
            first += count
        return results[0] if len(results) == 1 else torch.cat(results)

    def _padded(
        self,
        query: Rows,
        keys: Keys,
        values: Keys,
        *,
        active: list[int],
        mask: Mask | None,
        causal: bool,
        dropout: float,
    ) -> Rows:
        rows, most, width = len(active), max(self.counts), query.shape[1]
        if rows < len(self.counts):
            chosen = torch.tensor(active, device=query.device)
            keys, values = keys[chosen], values[chosen]
            mask = None if mask is None else mask[chosen]
        slot = None
        if rows * most > len(query):
            counts = torch.tensor([self.counts[row] for row in active], device=query.device)
            slot = (
                (torch.arange(most, device=query.device) < counts.unsqueeze(1)).flatten().nonzero().squeeze(1)
            )
            query = query.new_zeros(rows * most, width).index_copy(0, slot, query)
        visible: Tensor | None = mask
        if causal:
            position = self.index % self.length + self.stored
            if slot is not None:
                position = position.new_zeros(rows * most).index_copy(0, slot, position)
            seen = _seen(position.view(rows, most), keys.shape[2]).unsqueeze(1)
            visible = seen if mask is None else mask & seen
        asked = query.view(rows, most, keys.shape[1], keys.shape[3]).transpose(1, 2)
        result = scaled_dot_product_attention(asked, keys, values, attn_mask=visible, dropout_p=dropout)
        flat = result.transpose(1, 2).reshape(rows * most, width)
        return flat if slot is None else flat.index_select(0, slot)


def _seen(position: Int[Tensor, "*rows"], keys: int) -> Bool[Tensor, "*rows key"]:
    """Keys that stand no later than each position."""
    return torch.arange(keys, device=position.device) <= position.unsqueeze(-1)
