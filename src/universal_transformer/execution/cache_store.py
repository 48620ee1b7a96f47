"""Keys and values of running rows in a cache by depth step: for decoding with a cache, and for rows at different steps.

A position that halted after ``N`` steps keeps its state. What others attend to at the deeper steps follows from one
projection (``projection.py``), and each of the slots ``N … T - 1`` receives it. In the second and later blocks of a
step they attend to what entered these at step ``N``, so that the slots receive what slot ``N - 1`` holds. So attention
at step ``t`` reads one slot and does not depend on which positions have halted.
"""

import torch

from universal_transformer.axes import Float, Index, Int, KeysAndValues, Rows, Tensor
from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.execution.projection import HaltedProjection
from universal_transformer.execution.rows import Angles, rotate_rows
from universal_transformer.nn.attention import SelfAttention

RowKeys = Float[Tensor, "row heads stored head"]


class CacheStore:
    """The part of a :class:`KeyValueCache` that belongs to one block of a step, by (step, sequence, position).

    ``first``: the slot of step 0; ``stride``: the slots from a step to the next. ``projection``: of the first block.
    Where rows are at different steps, one slot after the last step receives what no step reads.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        attention: SelfAttention,
        projection: HaltedProjection | None,
        *,
        depth: int,
        first: int = 0,
        stride: int = 1,
    ) -> None:
        self.cache, self.attention, self.projection = cache, attention, projection
        self.depth, self.first, self.stride = depth, first, stride
        self.sequences, self.capacity = cache.entries.shape[1:3]
        number = torch.arange(depth + 1, device=cache.entries.device)
        # by number of steps made: the steps that a position that halts then is written to
        self.deeper = torch.maximum(number[1:], number.unsqueeze(1))

    # views made before a position is appended with gradients could not be written to
    @property
    def flat(self) -> Tensor:
        """The entries of all steps, sequences and positions."""
        return self.cache.entries.view(-1, self.cache.entries.shape[3])

    @property
    def slots(self) -> Tensor:
        """The entries of each step and sequence."""
        return self.cache.entries.flatten(0, 1)

    def slot(self, step: int | Index, sequence: Index) -> Index:
        """Number of the slot of each row at a step: one number for step and sequence."""
        if isinstance(step, int):
            return sequence + (self.first + step * self.stride) * self.sequences
        return torch.add(sequence, step * self.stride + self.first, alpha=self.sequences)

    def query(
        self,
        states: Rows,
        *,
        slot: Index,
        position: Index,
        shown: Rows | None = None,
        angles: Angles | None = None,
    ) -> Rows:
        """Queries of rows, whose keys and values (of ``shown``, if given) are written to their slots first.

        ``angles``: cosines and sines by which queries and keys are rotated.
        """
        width = states.shape[1]
        projected = self.attention.query_key_value(states)
        both = projected if shown is None else self.attention.query_key_value(shown)
        query, seen = projected[:, :width], both[:, width:]
        if angles is not None:
            query, seen = (
                rotate_rows(query, angles, num_heads=self.attention.num_heads),
                self._rotate_keys(seen, angles),
            )
        entry = torch.add(position, slot, alpha=self.capacity)
        self.flat.index_copy_(0, entry, seen.to(self.flat.dtype))
        return query

    def _rotate_keys(self, both: KeysAndValues, angles: Angles) -> KeysAndValues:
        """Rotate the keys by the angles of their rows; values stay as they are."""
        key, value = both.chunk(2, dim=1)
        return torch.cat((rotate_rows(key, angles, num_heads=self.attention.num_heads), value), dim=1)

    def keys_at(self, step: int, *, stored: int) -> tuple[RowKeys, RowKeys]:
        """Keys and values of all sequences at one step, of the first ``stored`` positions."""
        return self.cache.heads(self.first + step * self.stride, stored=stored)

    def keys_of(self, slot: Index, *, stored: int) -> tuple[RowKeys, RowKeys]:
        """Keys and values in the slots of rows, of the first ``stored`` positions."""
        heads = self.attention.num_heads
        both = self.slots[:, :stored].index_select(0, slot).view(len(slot), stored, 2 * heads, -1)
        both = both.transpose(1, 2)
        return both[:, :heads], both[:, heads:]

    def write_deeper(
        self, base: Rows, *, step: int | Index, sequence: Index, position: Index, angles: Angles | None = None
    ) -> None:
        """Write keys and values of halted rows with ``b = h + π``, which made ``step`` steps, to all deeper steps.

        Without a projection they are those of the last step, whose keys are rotated already.
        """
        if isinstance(step, int):
            steps: Int[Tensor, "row seen"] = torch.arange(step, self.depth, device=base.device)
            steps = steps.expand(len(base), -1)
            known = steps
        else:
            # rows that made different numbers of steps are written equally often, the surplus to the last slot
            steps = self.deeper.index_select(0, step)
            known = steps.clamp(max=self.depth - 1)
        if not steps.shape[1]:
            return
        if self.projection is None:
            last = torch.add(position, self.slot(step - 1, sequence), alpha=self.capacity)
            found = self.flat.index_select(0, last).unsqueeze(1).expand(-1, steps.shape[1], -1)
        else:
            found = self.projection.whole(base, steps=known)
            if angles is not None:
                each = angles.repeat_interleave(steps.shape[1], dim=1)
                found = self._rotate_keys(found.flatten(0, 1), each).view(found.shape)
        entry = torch.add(position, sequence, alpha=self.capacity).unsqueeze(1)
        entry = torch.add(entry, steps * self.stride + self.first, alpha=self.sequences * self.capacity)
        self.flat.index_copy_(0, entry.flatten(), found.flatten(0, 1).to(self.flat.dtype))
