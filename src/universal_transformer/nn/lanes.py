"""Depth-continuous decoding: rows at different tokens and different depth steps, refined by one call of the block.

Weights are shared over depth, so that two rows at different steps differ only in their signal ``τ_t`` and in the slot
of the cache they look at. A row that has halted goes on to its next token while its neighbours still think about
theirs: a batch costs its mean number of steps a token, not its greatest.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from universal_transformer.axes import Bool, Float, Index, Int, Rows, Tensor
from universal_transformer.nn.attention import Memory, attend
from universal_transformer.nn.halting import check_threshold, decide, wide
from universal_transformer.nn.lane_cache import LaneCache
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.refresh import Refresh

TOGETHER = 2**19
"""Numbers that rows look at together on a CPU: a copy of more would leave its nearer memory before it is read."""


def takes_lanes(recurrence: Recurrence) -> bool:
    """Whether rows at different steps may share a call: one block for all steps, whose halted positions are frozen and
    known to the cache; or one without halting.
    """
    return (
        recurrence.decoder
        and not (len(recurrence.before) or len(recurrence.after))
        and recurrence.steps_alike
        and (recurrence.halting is None or recurrence.compactible)
    )


@dataclass
class Thinking:
    """What each row carries: the token at ``place`` of sequence ``row`` in the cache, before depth step ``step``."""

    row: Index
    place: Index
    step: Index
    base: Rows  # h + π
    signal: Rows | None  # π, where it is added at every step
    output: Rows
    cumulative: Float[Tensor, "row"]

    def choose(self, kept: Int[Tensor, "kept"]) -> "Thinking":
        """Only the rows ``kept``."""
        return Thinking(
            row=self.row.index_select(0, kept),
            place=self.place.index_select(0, kept),
            step=self.step.index_select(0, kept),
            base=self.base.index_select(0, kept),
            signal=None if self.signal is None else self.signal.index_select(0, kept),
            output=self.output.index_select(0, kept),
            cumulative=self.cumulative.index_select(0, kept),
        )


class Lanes:
    """Sequences in a cache, each at a token of its own. :meth:`enter` puts tokens in, :meth:`tick` makes one step."""

    def __init__(
        self,
        recurrence: Recurrence,
        *,
        rows: int,
        capacity: int,
        max_steps: int | None,
        threshold: float | None,
    ) -> None:
        assert takes_lanes(recurrence)
        self.recurrence, self.depth = recurrence, recurrence.depth(max_steps)
        self.threshold = check_threshold(recurrence.threshold if threshold is None else threshold)
        self.block = block = recurrence.block
        weight = block.attention.query_key_value.weight
        coordinates = recurrence.coordinates
        self.steps = coordinates.step_signals(self.depth, like=weight)
        self.cache = LaneCache(
            block.attention,
            refresh=Refresh(block, signals=self.steps),
            depth=self.depth,
            rows=rows,
            capacity=capacity,
        )
        reach = capacity  # of the table, where there is one: requests are held to it
        if coordinates.position_table is not None:
            reach = min(capacity, len(coordinates.position_table))
        signal = coordinates.place(torch.arange(reach, device=weight.device).unsqueeze(0)).signal
        self.places = None if signal is None else signal.squeeze(0).to(weight.dtype)  # π of every place
        base = weight.new_zeros(rows, weight.shape[1])
        self.numbers = torch.arange(capacity, device=weight.device)
        number = torch.arange(rows, device=weight.device)
        self.thinking = Thinking(
            row=number,
            place=torch.zeros_like(number),
            step=torch.zeros_like(number),
            base=base,
            signal=base.clone() if coordinates.every_step and signal is not None else None,
            output=torch.zeros_like(base, dtype=wide(base.dtype)),
            cumulative=torch.zeros(rows, dtype=wide(base.dtype), device=base.device),
        )
        self.memory: Memory | None = None  # row by row, padded to the longest source so far

    def __len__(self) -> int:
        return len(self.thinking.row)

    def enter(self, states: Rows, *, at: Index, place: Index) -> None:
        """Embedded tokens for the rows ``at``, which begin to think about them; ``place`` tokens stand before each."""
        rows = self.thinking
        if self.places is not None:
            signal = self.places.index_select(0, place)
            states = states + signal
            if rows.signal is not None:
                rows.signal.index_copy_(0, at, signal)
        rows.base.index_copy_(0, at, states)
        rows.place.index_copy_(0, at, place)
        for part in (rows.step, rows.output, rows.cumulative):
            part.index_fill_(0, at, 0)

    def leave(self, kept: Int[Tensor, "kept"]) -> None:
        """Only the rows ``kept`` go on."""
        self.thinking = self.thinking.choose(kept)
        if self.memory is not None:
            key, value, mask = self.memory
            assert mask is not None
            self.memory = Memory(key[kept], value[kept], mask[kept])

    def remember(self, memory: Memory, *, row: int, at: int) -> None:
        """Let the row ``at`` look at the source in ``row`` of ``memory``."""
        length = memory.key.shape[2]
        if self.memory is None:
            blank = memory.key.new_zeros(len(self), *memory.key.shape[1:])
            hidden = torch.zeros(len(self), 1, 1, length, dtype=torch.bool, device=blank.device)
            self.memory = Memory(blank, blank.clone(), hidden)
        key, value, mask = self.memory
        assert mask is not None
        more = length - key.shape[2]
        if more > 0:
            key, value, mask = pad(key, (0, 0, 0, more)), pad(value, (0, 0, 0, more)), pad(mask, (0, more))
            self.memory = Memory(key, value, mask)
        key[at, :, :length], value[at, :, :length] = memory.key[row], memory.value[row]
        mask[at] = False
        mask[at, :, :, :length] = True if memory.mask is None else memory.mask[row]

    def tick(self) -> Int[Tensor, "ended"]:
        """One depth step of every row; the rows whose token is through."""
        rows = self.thinking
        timed = rows.base
        if self.steps is not None:
            timed = timed + self.steps.index_select(0, rows.step)
        new = self.block.forward_rows(
            timed, attend=self._attend, look=None if self.memory is None else self._look
        )
        at = self._decide(timed, new).nonzero().squeeze(1)
        rows.step = rows.step + 1
        rows.base = new if rows.signal is None else new + rows.signal
        if self.recurrence.halting is not None and len(at):
            step, row, place = (part.index_select(0, at) for part in (rows.step, rows.row, rows.place))
            self.cache.settle(rows.base.index_select(0, at), step=step, row=row, place=place)
        return at

    def _decide(self, timed: Rows, new: Rows) -> Bool[Tensor, "row"]:
        """Fold the new states into the outputs, as ``combine`` of ``nn/halting.py`` where all rows run; which halt."""
        rows, recurrence = self.thinking, self.recurrence
        last = rows.step == self.depth - 1
        if recurrence.halting is None:
            rows.output = new
            return last
        stop = last if recurrence.remainder_at_cap else False
        probability = recurrence.halting.each(timed)
        rows.cumulative, weight, _ = decide(rows.cumulative, probability, threshold=self.threshold, stop=stop)
        share, made = weight.unsqueeze(1), new.to(rows.output.dtype)
        if recurrence.output == "mean":
            rows.output = torch.addcmul(rows.output, share, made)
        elif recurrence.output == "final":
            rows.output = made
        else:
            rows.output = share * made + (1.0 - share) * rows.output
        ended = rows.cumulative >= 1.0
        return ended if recurrence.remainder_at_cap else ended.logical_or_(last)

    def result(self, at: Int[Tensor, "ended"]) -> tuple[Rows, Float[Tensor, "ended"], Index]:
        """The last states of rows whose token is through, how many steps it took, and its place."""
        rows, norm = self.thinking, self.recurrence.closing_norm
        output, step, place = (part.index_select(0, at) for part in (rows.output, rows.step, rows.place))
        output = output.to(rows.base.dtype)
        return output if norm is None else norm(output), step.to(wide(output.dtype)), place

    def _attend(self, states: Rows) -> Rows:
        """Each row over the places up to its own, in the slot of its step."""
        module, rows, cache = self.block.attention, self.thinking, self.cache
        projected, width = module.query_key_value(states), states.shape[1]
        slot, stored = cache.slot_of(rows.step, rows.row), int(rows.place.max()) + 1
        cache.write(projected[:, width:], slot=slot, place=rows.place)
        asked = projected[:, :width].view(len(states), module.num_heads, 1, -1)
        size = len(states)
        if asked.device.type == "cpu":
            size = max(1, min(size, TOGETHER // (2 * width * stored)))
        seen = (self.numbers[:stored] <= rows.place.unsqueeze(1))[:, None, None]
        parts = zip(*(torch.split(each, size) for each in (asked, slot, seen)), strict=True)
        mixed = [attend(query, *cache.slots(at, stored=stored), mask=mask) for query, at, mask in parts]
        return module.output(torch.cat(mixed).view(len(states), width))

    def _look(self, states: Rows) -> Rows:
        """Each row over its own source."""
        module, memory = self.block.cross_attention, self.memory
        assert module is not None
        assert memory is not None
        asked = module.query(states).view(len(states), module.num_heads, 1, -1)
        mixed = attend(asked, memory.key, memory.value, mask=memory.mask)
        return module.output(mixed.flatten(1))
