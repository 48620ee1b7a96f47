"""Keys and values of sequences whose rows stand at different depth steps: by step, sequence and place.

The key and the value of a place lie side by side and those of the next place behind them, so that what a row writes is
one stretch of memory, and what it looks at another.
"""

import torch

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.memory import allocate
from universal_transformer.nn.refresh import Refresh

Rows = Float[Tensor, "row width"]
Both = Float[Tensor, "row channel"]  # a key, then a value
Index = Int[Tensor, "row"]
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
        self.deeper = torch.arange(1, depth + 1, device=weight.device)
        self.entries = allocate(
            (depth + 1, rows, capacity, 2 * width), dtype=weight.dtype, device=weight.device,
            what=f"a cache of capacity {capacity} for {rows} sequences",
            fix="ask for fewer new tokens, or for fewer sequences at a time",
        )  # fmt: skip
        self._flat, self._stride = self.entries.view(-1, 2 * width), rows * capacity

    def write(self, both: Both, *, step: Index, row: Index, place: Index) -> None:
        """Store keys and values."""
        self._flat.index_copy_(0, step * self._stride + row * self.entries.shape[2] + place, both)

    def load(self, cache: KeyValueCache, *, source: int, first: int, row: int) -> None:
        """The places of sequence ``source`` from ``first`` on, all steps of them, become the first ones of ``row``."""
        last, half = cache.length, self.entries.shape[3] // 2
        for part, stored in enumerate((cache.keys, cache.values)):
            given = stored[:, source, :, first:last].transpose(1, 2)
            self.entries[:-1, row, : last - first, part * half : (part + 1) * half] = given.flatten(2)

    def slots(self, step: Index, row: Index, *, stored: int) -> tuple[Seen, Seen]:
        """Keys and values of the first ``stored`` places that rows at these steps look at."""
        places = self.entries.flatten(0, 1)[:, :stored]
        found = places.index_select(0, step * self.entries.shape[1] + row).view(
            len(step), stored, 2 * self.num_heads, -1
        )
        key, value = found.transpose(1, 2).chunk(2, dim=1)
        return key, value

    def slot(
        self, step: int, row: int, *, stored: int
    ) -> tuple[Float[Tensor, "1 heads stored head"], Float[Tensor, "1 heads stored head"]]:
        """The same of a single row, where it lies."""
        found = self.entries[step, row, :stored].view(1, stored, 2 * self.num_heads, -1)
        key, value = found.transpose(1, 2).chunk(2, dim=1)
        return key, value

    def settle(self, base: Rows, *, step: Index, row: Index, place: Index) -> None:
        """Serve ``base = h + π`` of rows that halted to all steps from ``step`` on (none when that is the depth).

        Every row writes as often: what would come in front of ``step`` goes there too, and what would come behind the
        last step into a slot that nobody reads. That is more memory and far fewer operations than picking pairs.
        """
        steps = torch.maximum(self.deeper, step.unsqueeze(1)).flatten()
        which = torch.arange(len(base), device=base.device).repeat_interleave(self.depth)
        repeated = self.refresh.whole(base, which=which, steps=steps.clamp(max=self.depth - 1))
        at = (row * self.entries.shape[2] + place).repeat_interleave(self.depth)
        self._flat.index_copy_(0, steps * self._stride + at, repeated)


__all__ = ["Both", "Index", "LaneCache", "Rows", "Seen"]
