"""Keys and values of sequences whose rows stand at different depth steps: by step, sequence and place.

The key and the value of a place lie side by side and those of the next place behind them, so that what a row writes is
one stretch of memory, and what it looks at another.
"""

import torch

from universal_transformer.axes import Both, Float, Index, Rows, Tensor
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.memory import allocate
from universal_transformer.nn.refresh import Refresh

Seen = Float[Tensor, "row heads stored head"]


class LaneCache:
    """``rows`` sequences of up to ``capacity`` places, at ``depth`` steps. ``refresh``: what halted rows look like."""

    def __init__(
        self,
        attention: SelfAttention,
        *,
        refresh: Refresh,
        depth: int,
        rows: int,
        capacity: int,
    ) -> None:
        weight = attention.query_key_value.weight
        width = weight.shape[1]
        self.num_heads, self.depth, self.refresh = attention.num_heads, depth, refresh
        number = torch.arange(depth + 1, device=weight.device)
        # by step: the steps that what settles in front of it serves
        self.deeper = torch.maximum(number[1:], number.unsqueeze(1))
        self.entries = allocate(
            (depth + 1, rows, capacity, 2 * width), dtype=weight.dtype, device=weight.device,
            what=f"a cache of capacity {capacity} for {rows} sequences",
            fix="ask for fewer new tokens, or for fewer sequences at a time",
        )  # fmt: skip
        self._flat, self._slots = self.entries.view(-1, 2 * width), self.entries.flatten(0, 1)
        self.rows, self.capacity = rows, capacity

    def write(self, both: Both, *, slot: Index, place: Index) -> None:
        """Store keys and values."""
        self._flat.index_copy_(0, torch.add(place, slot, alpha=self.capacity), both)

    def load(self, cache: KeyValueCache, *, source: int, first: int, row: int) -> None:
        """The places of sequence ``source`` from ``first`` on, all steps of them, become the first ones of ``row``."""
        last = cache.length
        ours = self.entries[:-1, row, : last - first].view(self.depth, last - first, 2, self.num_heads, -1)
        for part, stored in enumerate((cache.keys, cache.values)):
            ours[:, :, part] = stored[:, source, :, first:last].transpose(1, 2)

    def slot_of(self, step: Index, row: Index) -> Index:
        """The slot that a row looks at before a step: one number for both."""
        return torch.add(row, step, alpha=self.rows)

    def slots(self, slot: Index, *, stored: int) -> tuple[Seen, Seen]:
        """Keys and values of the first ``stored`` places of some slots."""
        both = self._slots[:, :stored].index_select(0, slot)
        heads = both.view(len(slot), stored, 2 * self.num_heads, -1).transpose(1, 2)
        return heads[:, : self.num_heads], heads[:, self.num_heads :]

    def settle(self, base: Rows, *, step: Index, row: Index, place: Index) -> None:
        """Serve ``base = h + π`` of rows that halted to all steps from ``step`` on (none when that is the depth).

        Every row writes as often: what would come in front of ``step`` goes there too, and what would come behind the
        last step into a slot that nobody reads. That is more memory and far fewer operations than picking pairs.
        """
        steps = self.deeper.index_select(0, step)
        at = torch.add(place, row, alpha=self.capacity).unsqueeze(1)
        found = self.refresh.whole(base, steps=steps.clamp(max=self.depth - 1))
        at = torch.add(at, steps, alpha=self.rows * self.capacity)
        self._flat.index_copy_(0, at.flatten(), found.flatten(0, 1))
