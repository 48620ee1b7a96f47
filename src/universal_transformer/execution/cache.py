"""The cache of incremental decoding: keys and values by layer application and position.

A decoder that applies its block at ``T`` depth steps has ``T`` sets of keys and values for each position, one *slot*
for each application of a block, in order: slot ``step * blocks_per_step + block``.

A position that halted after ``N`` steps keeps its state. What others attend to at the deeper steps follows from one
projection (``projection.py``), and each of the slots ``N … T - 1`` receives it. In the second and later blocks of a
step they attend to what entered these at step ``N``, so that the slots receive what slot ``N - 1`` holds. So attention
at step ``t`` reads one slot and does not depend on which positions have halted.
"""

import torch
from torch import nn

from universal_transformer.axes import Float, Index, Int, KeysAndValues, Rows, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution import policy
from universal_transformer.execution.projection import HaltedProjection
from universal_transformer.execution.rows import Alone, Angles, BatchLayout, StepOfRows, rotate_rows
from universal_transformer.memory import check_memory
from universal_transformer.nn.context import AllHeads
from universal_transformer.nn.recurrence import Recurrence


class KeyValueCache:
    """``num_slots`` sets of keys and values for ``capacity`` positions.

    The key and the value of a position are stored next to each other: ``entries[slot, row, position]`` holds both.
    ``convolution``: channels of the inputs of a convolutional transition, which are stored too. Halting does not make
    it smaller: later positions attend to a halted position at every step. UserError when it does not fit into the free
    memory.
    """

    projection: HaltedProjection | None = None
    """The projection of halted positions that its entries were computed with."""

    def __init__(
        self,
        num_slots: int,
        *,
        batch: int,
        num_heads: int,
        capacity: int,
        width: int,
        convolution: int = 0,
        like: Tensor,
    ) -> None:
        if capacity < 1:
            raise UserError(f"capacity={capacity}: a cache holds at least 1 position")
        self.num_heads, self.length = num_heads, 0
        what = f"a cache of capacity {capacity} for {batch} sequences"
        fix = "ask for fewer new tokens, or for fewer sequences at a time"
        elements = (2 * width + convolution) * num_slots * batch * capacity
        check_memory(elements * like.element_size(), device=like.device, what=what, fix=fix)
        try:
            self.entries = like.new_zeros(num_slots, batch, capacity, 2 * width)
            self.inputs = like.new_zeros(num_slots, batch, capacity, convolution) if convolution else None
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
                len(index) * sum(part[:, 0].nbytes for part in (self.entries, self.inputs) if part is not None),
                device=self.entries.device,
                what=f"a cache of capacity {self.capacity} for {len(index)} sequences",
                fix="ask for fewer beams, fewer new tokens, or fewer sequences at a time",
            )
        self.entries = _moved(self.entries.detach(), index, stored=self.length)
        if self.inputs is not None:
            self.inputs = _moved(self.inputs.detach(), index, stored=self.length)


def _moved(
    entries: Float[Tensor, "slots batch capacity width"], index: Int[Tensor, "rows"], *, stored: int
) -> Float[Tensor, "slots rows capacity width"]:
    """Rows ``index`` of the ``stored`` positions, in the memory of the present ones where they are not more.

    A slot begins at or before its present place, so that only slots that have moved already are overwritten.
    """
    slots, batch, capacity, width = entries.shape
    rows = len(index)
    if rows > batch:
        return entries[:, index]
    moved = entries.view(-1, capacity, width)[: slots * rows].view(slots, rows, capacity, width)
    gathered = entries.new_empty(rows, stored, width)  # one for all slots, because new memory takes time
    for present, place in zip(entries, moved, strict=True):
        place[:, :stored] = torch.index_select(present[:, :stored], 0, index, out=gathered)
    return moved


class CacheStore:
    """The part of a :class:`KeyValueCache` that belongs to one block of a step, by (step, sequence, position).

    ``first``, the number of the block, is the slot of step 0, and ``stride`` are the slots from a step to the next.
    Where rows are at different steps, one slot after the last of ``depth`` steps receives what no step reads.
    """

    def __init__(self, cache: KeyValueCache, recurrence: Recurrence, first: int, *, depth: int) -> None:
        self.cache, self.attention = cache, recurrence.blocks[first].attention
        self.projection = None if first else cache.projection
        self.depth, self.first, self.stride = depth, first, recurrence.blocks_per_step
        self.sequences, self.capacity = cache.entries.shape[1:3]

    @property
    def flat(self) -> Tensor:
        """The entries of all slots, sequences and positions. A view that was made before a position is appended with
        gradients could not be written to.
        """
        return self.cache.entries.view(-1, self.cache.entries.shape[3])

    def slot(self, step: int | Index, sequence: Index) -> Index:
        """Number of the slot of each row at a step: one number for step and sequence."""
        if isinstance(step, int):
            return sequence + (self.first + step * self.stride) * self.sequences
        return torch.add(sequence, step * self.stride + self.first, alpha=self.sequences)

    def attend(self, states: Rows, at: StepOfRows, *, seen: Rows | None) -> Rows:
        """Self-attention of rows, whose keys and values (of ``seen``, if given) are written first."""
        attention, layout, width = self.attention, at.layout, states.shape[1]
        projected = attention.query_key_value(states)
        both = (projected if seen is None else attention.query_key_value(seen))[:, width:]
        query = projected[:, :width]
        if attention.rotates:
            query = rotate_rows(query, at.angles, num_heads=attention.num_heads)
        slot = self.slot(at.step, layout.sequence)
        self._write(torch.add(layout.position, slot, alpha=self.capacity), self._rotated(both, at.angles))
        if isinstance(layout, Alone):
            return attention.output(self._of_each(query, slot, layout))
        assert isinstance(at.step, int)
        stored, hidden = layout.stored + layout.length, at.context.stored_padding
        key, value = self.cache.heads(self.first + at.step * self.stride, stored=stored)
        mask, dropout = None if hidden is None else ~hidden[:, None, None, :], attention.active_dropout
        mixed = layout.attend(query, key, value, mask=mask, causal=layout.length > 1, dropout=dropout)
        return attention.output(mixed)

    def _write(self, entry: Int[Tensor, "entry"], both: KeysAndValues) -> None:
        self.flat.index_copy_(0, entry, both.to(self.cache.entries.dtype))

    def _rotated(self, both: KeysAndValues, angles: Angles | None) -> KeysAndValues:
        """Keys and values, the keys rotated by the angles of their rows where positions are rotary."""
        if not self.attention.rotates:
            return both
        key, value = both.chunk(2, dim=1)
        return torch.cat((rotate_rows(key, angles, num_heads=self.attention.key_heads), value), dim=1)

    def _of_each(self, query: Rows, slot: Index, layout: Alone) -> Rows:
        """Attention of each row over the positions up to its own in its slot, some rows at a time on a CPU."""
        heads, stored, size = self.attention.key_heads, int(layout.position.max()) + 1, len(query)
        if query.device.type == "cpu":
            size = max(1, min(size, policy.MOST_GATHERED // (2 * query.shape[1] * stored)))
        visible = torch.arange(stored, device=query.device) <= layout.position.view(-1, 1, 1, 1)
        slots, mixed = self.cache.entries.flatten(0, 1)[:, :stored], list[Tensor]()
        parts = (torch.split(part, size) for part in (query, slot, visible))
        for queries, numbers, mask in zip(*parts, strict=True):
            both = slots.index_select(0, numbers).view(len(numbers), stored, 2 * heads, -1).transpose(1, 2)
            mixed.append(layout.attend(queries, both[:, :heads], both[:, heads:], mask=mask))
        return torch.cat(mixed)

    def write_deeper(
        self, base: Rows, *, step: int | Index, layout: BatchLayout | Alone, angles: Angles | None
    ) -> None:
        """Write keys and values of halted rows with ``b = h + π``, which made ``step`` steps, to all deeper steps.

        Without a projection they are those of the last step, whose keys are rotated already.
        """
        if isinstance(step, int):
            steps: Int[Tensor, "row seen"] = torch.arange(step, self.depth, device=base.device).expand(len(base), -1)
            known = steps
        else:
            # rows that made different numbers of steps are written equally often, the surplus to the last slot
            number = torch.arange(1, self.depth + 1, device=base.device)
            steps = torch.maximum(number, step.unsqueeze(1))
            known = steps.clamp(max=self.depth - 1)
        if not steps.numel():
            return
        if self.projection is None:
            last = torch.add(layout.position, self.slot(step - 1, layout.sequence), alpha=self.capacity)
            both = self.flat.index_select(0, last).unsqueeze(1).expand(-1, steps.shape[1], -1).flatten(0, 1)
        else:
            repeated = None if angles is None else angles.repeat_interleave(steps.shape[1], dim=1)
            both = self._rotated(self.projection.whole(base, steps=known).flatten(0, 1), repeated)
        entry = torch.add(layout.position, layout.sequence, alpha=self.capacity).unsqueeze(1)
        entry = torch.add(entry, steps * self.stride + self.first, alpha=self.sequences * self.capacity)
        self._write(entry.flatten(), both)


def cache_stores(recurrence: Recurrence, cache: KeyValueCache, *, depth: int) -> dict[nn.Module, CacheStore]:
    """The cache by depth step, for the attention of each block of a step."""
    if cache.projection is None:
        signals = recurrence.coordinates.signals(depth, like=cache.entries)
        cache.projection = HaltedProjection(recurrence.blocks[0], signals=signals)
    stores = (CacheStore(cache, recurrence, number, depth=depth) for number in range(recurrence.blocks_per_step))
    return {store.attention: store for store in stores}
