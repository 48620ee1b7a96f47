"""The cache of incremental decoding: keys and values by layer application and position.

A decoder that applies its block at ``T`` depth steps has ``T`` sets of keys and values for each position, one *slot*
for each application of a block, in order. :class:`KeyValueCache` holds all of them, allocated once.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.errors import UserError

AllHeads = Float[Tensor, "batch heads stored head"]


@runtime_checkable
class OtherPositions(Protocol):
    """What holds keys and values of positions that are not in a call: those of earlier calls, for example."""

    def append(
        self, key: Float[Tensor, "batch heads new head"], value: Float[Tensor, "batch heads new head"]
    ) -> tuple[AllHeads, AllHeads]:
        """Take the keys and values of a call; return those of all positions that it may attend to."""


@dataclass
class LayerCache:
    """One slot: a view of the cache that the attention and the transition of one block application write to."""

    entries: Float[Tensor, "batch capacity 2 heads head"]
    inputs: Float[Tensor, "batch capacity width"] | None  # of a convolutional transition
    length: int

    def heads(self, stored: int) -> tuple[AllHeads, AllHeads]:
        """Keys and values of the first ``stored`` positions, as views."""
        both = self.entries[:, :stored].transpose(1, 3)
        return both[:, :, 0], both[:, :, 1]

    def append(
        self, key: Float[Tensor, "batch heads new head"], value: Float[Tensor, "batch heads new head"]
    ) -> tuple[AllHeads, AllHeads]:
        """Store new keys and values after the ``length`` earlier ones; return all of them."""
        end = self.length + key.shape[2]
        for part, new in enumerate((key, value)):
            self.entries[:, self.length : end, part] = new.transpose(1, 2)
        return self.heads(end)

    def extend(self, states: Float[Tensor, "batch new width"], *, reach: int) -> Float[Tensor, "batch seen width"]:
        """Store new inputs of a convolution; return them after (at most) ``reach`` earlier ones."""
        assert self.inputs is not None
        end = self.length + states.shape[1]
        self.inputs[:, self.length : end] = states
        return self.inputs[:, max(0, self.length - reach) : end]


class KeyValueCache:
    """``num_slots`` sets of keys and values for ``capacity`` positions.

    The key and the value of a position are stored next to each other: ``entries[slot, row, position]`` holds both.
    ``convolution``: the inputs of a convolutional transition are stored too, half as many numbers again. Halting does
    not make it smaller: later positions attend to a halted position at every step.
    """

    def __init__(
        self,
        num_slots: int,
        *,
        batch: int,
        num_heads: int,
        capacity: int,
        width: int,
        convolution: bool = False,
        like: Tensor,
    ) -> None:
        if capacity < 1:
            raise UserError(f"capacity={capacity}: a cache holds at least 1 position")
        self.num_heads, self.length = num_heads, 0
        self.entries = like.new_zeros(num_slots, batch, capacity, 2 * width)
        self.inputs = like.new_zeros(num_slots, batch, capacity, width) if convolution else None

    @property
    def capacity(self) -> int:
        """Positions that the cache can hold."""
        return self.entries.shape[2]

    def layer(self, slot: int) -> LayerCache:
        """The slot of one block application."""
        batch, capacity = self.entries.shape[1:3]
        entries = self.entries[slot].view(batch, capacity, 2, self.num_heads, -1)
        return LayerCache(entries, None if self.inputs is None else self.inputs[slot], self.length)

    def check(self, new: int) -> None:
        """UserError unless ``new`` further positions fit."""
        if self.length + new > self.capacity:
            raise UserError(
                f"{self.length} + {new} positions do not fit a cache of capacity {self.capacity}: "
                "allocate a larger one or shorten the prompt"
            )

    def reorder(self, index: Int[Tensor, "rows"]) -> None:
        """Rows ``index`` replace the present ones (beam search)."""
        self.entries = self.entries[:, index]
        if self.inputs is not None:
            self.inputs = self.inputs[:, index]
