"""What incremental decoding keeps: keys and values by layer application and position.

A decoder that applies its block at ``T`` depth steps has ``T`` sets of keys and values per position (one *slot* for
each application of a layer, in order); :class:`KeyValueCache` holds them all, allocated once.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.memory import allocate, check_room

if TYPE_CHECKING:
    from universal_transformer.nn.refresh import Refresh


@dataclass
class LayerCache:
    """One slot: a view into the cache that the attention and the transition of one layer application write to."""

    keys: Float[Tensor, "batch heads capacity head"]
    values: Float[Tensor, "batch heads capacity head"]
    inputs: Float[Tensor, "batch capacity width"] | None  # of a convolutional transition
    length: int

    def append(
        self, key: Float[Tensor, "batch heads new head"], value: Float[Tensor, "batch heads new head"]
    ) -> tuple[Float[Tensor, "batch heads stored head"], Float[Tensor, "batch heads stored head"]]:
        """Store new keys and values behind the ``length`` earlier ones; return all of them."""
        end = self.length + key.shape[2]
        self.keys[:, :, self.length : end] = key
        self.values[:, :, self.length : end] = value
        return self.keys[:, :, :end], self.values[:, :, :end]

    def extend(
        self, states: Float[Tensor, "batch new width"], *, reach: int
    ) -> Float[Tensor, "batch seen width"]:
        """Store new inputs of a convolution; return them behind (at most) ``reach`` earlier ones."""
        assert self.inputs is not None
        end = self.length + states.shape[1]
        self.inputs[:, self.length : end] = states
        return self.inputs[:, max(0, self.length - reach) : end]


def cache_elements(num_slots: int, *, batch: int, capacity: int, width: int, convolution: bool) -> int:
    """Numbers that a :class:`KeyValueCache` holds: keys and values, and the inputs of a convolutional transition.

    ``(2 or 3) * num_slots * batch * capacity * width``, whatever was halted: a position that stopped thinking still
    has an entry for every step that others may look from.
    """
    return (3 if convolution else 2) * num_slots * batch * capacity * width


class KeyValueCache:
    """``num_slots`` layers of keys and values for ``capacity`` positions, allocated once (see `cache_elements`)."""

    def __init__(
        self,
        num_slots: int,
        *,
        batch: int,
        num_heads: int,
        capacity: int,
        width: int,
        convolution: bool,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if capacity < 1:
            raise UserError(f"capacity={capacity}: a cache holds at least 1 position")
        shape = (num_slots, batch, num_heads, capacity, width // num_heads)
        what = f"a cache of capacity {capacity} for {batch} sequences"
        fix = "ask for fewer new tokens, or for fewer sequences at a time"
        check_room(2 * math.prod(shape) * dtype.itemsize, device=device, what=what, fix=fix)
        self.keys, self.values = (
            allocate(shape, dtype=dtype, device=device, what=what, fix=fix) for _ in range(2)
        )
        self.inputs = None
        if convolution:
            stored = (num_slots, batch, capacity, width)
            self.inputs = allocate(stored, dtype=dtype, device=device, what=what, fix=fix)
        self.length = 0
        self.refresh: Refresh | None = None  # what halted positions look like: see nn/depth_cache.py

    @property
    def capacity(self) -> int:
        """Positions that fit."""
        return self.keys.shape[3]

    def layer(self, slot: int) -> LayerCache:
        """The slot of one layer application."""
        inputs = None if self.inputs is None else self.inputs[slot]
        return LayerCache(self.keys[slot], self.values[slot], inputs, self.length)

    def write(
        self,
        key: Float[Tensor, "row width"],
        value: Float[Tensor, "row width"],
        *,
        slot: int | Int[Tensor, "row"],
        row: Int[Tensor, "row"],
        place: Int[Tensor, "row"],
    ) -> None:
        """Store keys and values of single positions: ``place`` among those of sequence ``row``, in ``slot``."""
        for stored, new in ((self.keys, key), (self.values, value)):
            stored[slot, row, :, place] = new.view(len(new), stored.shape[2], stored.shape[4]).to(
                stored.dtype
            )

    def check(self, new: int) -> None:
        """UserError unless ``new`` further positions fit."""
        if self.length + new > self.capacity:
            raise UserError(
                f"{self.length} + {new} positions do not fit a cache of capacity {self.capacity}: "
                "allocate a larger one or shorten the prompt"
            )

    def reorder(self, index: Int[Tensor, "rows"]) -> None:
        """Rows ``index`` in place of the present ones (beam search)."""
        more = len(index) - self.keys.shape[1]
        if more > 0:
            check_room(
                2 * len(index) * self.keys[:, 0].nbytes,
                device=self.keys.device,
                what=f"a cache of capacity {self.capacity} for {len(index)} sequences",
                fix="ask for fewer beams, fewer new tokens, or fewer sequences at a time",
            )
        self.keys, self.values = self.keys[:, index], self.values[:, index]
        if self.inputs is not None:
            self.inputs = self.inputs[:, index]
