"""The cache of incremental decoding: keys and values by layer application and position.

A decoder that applies its block at ``T`` depth steps has ``T`` sets of keys and values for each position, one *slot*
for each application of a block, in order: slot ``step * blocks_per_step + block``.
"""

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.memory import check_memory
from universal_transformer.nn.context import AllHeads


class KeyValueCache:
    """``num_slots`` sets of keys and values for ``capacity`` positions.

    The key and the value of a position are stored next to each other: ``entries[slot, row, position]`` holds both.
    ``convolution``: the inputs of a convolutional transition are stored too, half as many numbers again. Halting does
    not make it smaller: later positions attend to a halted position at every step. UserError when it does not fit into
    the free memory.
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
        what = f"a cache of capacity {capacity} for {batch} sequences"
        fix = "ask for fewer new tokens, or for fewer sequences at a time"
        elements = (3 if convolution else 2) * num_slots * batch * capacity * width
        check_memory(elements * like.element_size(), device=like.device, what=what, fix=fix)
        try:
            self.entries = like.new_zeros(num_slots, batch, capacity, 2 * width)
            self.inputs = like.new_zeros(num_slots, batch, capacity, width) if convolution else None
        except RuntimeError:  # raised by torch when the memory does not suffice after all
            raise UserError(f"{what} does not fit into memory: {fix}") from None

    @property
    def capacity(self) -> int:
        """Positions that the cache can hold."""
        return self.entries.shape[2]

    def heads(self, slot: int, *, stored: int) -> tuple[AllHeads, AllHeads]:
        """Keys and values of the first ``stored`` positions, as views."""
        batch, capacity = self.entries.shape[1:3]
        both = self.entries[slot].view(batch, capacity, 2, self.num_heads, -1)[:, :stored].transpose(1, 3)
        return both[:, :, 0], both[:, :, 1]

    def append(
        self, key: Float[Tensor, "batch heads new head"], value: Float[Tensor, "batch heads new head"], *, slot: int
    ) -> tuple[AllHeads, AllHeads]:
        """Store new keys and values after the ``length`` earlier ones; return all of them."""
        end = self.length + key.shape[2]
        batch, capacity = self.entries.shape[1:3]
        both = self.entries[slot].view(batch, capacity, 2, self.num_heads, -1)
        for part, new in enumerate((key, value)):
            both[:, self.length : end, part] = new.transpose(1, 2)
        return self.heads(slot, stored=end)

    def extend(
        self, states: Float[Tensor, "batch new width"], *, reach: int, slot: int
    ) -> Float[Tensor, "batch seen width"]:
        """Store new inputs of a convolution; return them after (at most) ``reach`` earlier ones."""
        assert self.inputs is not None
        end = self.length + states.shape[1]
        self.inputs[slot, :, self.length : end] = states
        return self.inputs[slot, :, max(0, self.length - reach) : end]

    def check(self, new: int) -> None:
        """UserError unless ``new`` further positions fit."""
        if self.length + new > self.capacity:
            raise UserError(
                f"{self.length} + {new} positions do not fit a cache of capacity {self.capacity}: "
                "allocate a larger one or shorten the prompt"
            )

    def reorder(self, index: Int[Tensor, "rows"]) -> None:
        """Rows ``index`` replace the present ones (beam search); UserError when more rows do not fit into memory."""
        if len(index) > self.entries.shape[1]:
            check_memory(
                len(index) * self.entries[:, 0].nbytes,
                device=self.entries.device,
                what=f"a cache of capacity {self.capacity} for {len(index)} sequences",
                fix="ask for fewer beams, fewer new tokens, or fewer sequences at a time",
            )
        self.entries = self.entries[:, index]
        if self.inputs is not None:
            self.inputs = self.inputs[:, index]
