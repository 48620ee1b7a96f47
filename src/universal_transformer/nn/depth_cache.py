"""Keys and values by depth step and position: one that has halted is projected once, however deep others look.

A position that halted after ``N`` steps keeps its state, and what others see of it at the deeper steps follows from one
projection (``nn/refresh.py``). Each of the slots ``N … T - 1`` receives what its step sees. Attention at step ``t``
reads one contiguous slot and need not know who has halted. It takes frozen states, and the feed-forward transition,
which sees no neighbour.
"""

import torch

from universal_transformer.axes import Float, Index, Rows, Tensor
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.refresh import Refresh

Slot = Float[Tensor, "batch heads stored head"]


class DepthCache:
    """A view of a :class:`KeyValueCache` by depth step, ``first`` being the slot of step 0.

    Rows are named by two indices: row of the cache, and place among the positions of that row.
    """

    def __init__(
        self, cache: KeyValueCache, attention: SelfAttention, refresh: Refresh, *, first: int, depth: int
    ) -> None:
        self.cache, self.attention, self.refresh = cache, attention, refresh
        self.first, self.depth = first, depth

    def query(self, timed: Rows, *, step: int, row: Index, place: Index) -> Rows:
        """``x W_Q`` of running rows, whose keys and values of this step are stored."""
        query, key, value = self.attention.project_rows(timed)
        self.cache.write(key, value, slot=self.first + step, row=row, place=place)
        return query

    def slot(self, step: int, *, stored: int) -> tuple[Slot, Slot]:
        """Keys and values that positions at ``step`` look at: of the first ``stored`` places of all rows."""
        slot = self.first + step
        return self.cache.keys[slot][:, :, :stored], self.cache.values[slot][:, :, :stored]

    def settle(self, base: Rows, *, step: int, row: Index, place: Index) -> None:
        """Serve ``b = h + π`` of rows that halted to all steps from ``step`` on."""
        deeper = torch.arange(step, self.depth, device=base.device).expand(len(base), -1)
        key, value = self.refresh.whole(base, steps=deeper).flatten(0, 1).chunk(2, dim=-1)
        row, place = (index.repeat_interleave(deeper.shape[1]) for index in (row, place))
        self.cache.write(key, value, slot=self.first + deeper.flatten(), row=row, place=place)
