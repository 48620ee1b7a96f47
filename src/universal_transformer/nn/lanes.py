"""Depth-continuous decoding: rows at different tokens and different depth steps, refined by one call of the block.

Weights are shared over depth, so that two rows at different steps differ only in their signal ``τ_t`` and in the slot
of the cache they look at. A row that has halted goes on to its next token while its neighbours still think about
theirs: a batch costs its mean number of steps a token, not its greatest.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.nn.attention import Memory
from universal_transformer.nn.block import Block
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.halting import Halting, advance, check_threshold, combine, wide
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.transition import FeedForward

LONG = 96
"""Stored places from which on a CPU looks at them row by row rather than copying them for one call."""

Rows = Float[Tensor, "row width"]
Index = Int[Tensor, "row"]


def takes_lanes(recurrence: Recurrence) -> bool:
    """Whether rows at different steps may share a call: one block for all steps, whose halted positions are frozen and
    known to the cache; or one without halting.
    """
    block, coordinates = recurrence.blocks[0], recurrence.coordinates
    assert isinstance(block, Block)
    return (
        recurrence.decoder
        and recurrence.tied
        and recurrence.layers_per_step == 1
        and not (len(recurrence.before) or len(recurrence.after))
        and isinstance(block.transition, FeedForward)
        and not coordinates.shift_by_step
        and coordinates.join is None
        and coordinates.position != "rotary"
        and (recurrence.halting is None or recurrence.compactible)
    )


@dataclass
class Thinking:
    """What each row carries: the token at ``place`` of sequence ``row`` in the cache, before depth step ``step``."""

    row: Index
    place: Index
    step: Index
    states: Rows
    signal: Rows  # π
    output: Rows
    halting: Halting  # of one row: [1, row]

    def choose(self, kept: Int[Tensor, "kept"]) -> "Thinking":
        """Only the rows ``kept``."""
        return Thinking(
            row=self.row[kept],
            place=self.place[kept],
            step=self.step[kept],
            states=self.states[kept],
            signal=self.signal[kept],
            output=self.output[kept],
            halting=Halting(*(part[:, kept] for part in self.halting)),
        )


class Lanes:
    """The rows of a cache, each at a token of its own. :meth:`enter` puts tokens in, :meth:`tick` makes one step."""

    def __init__(
        self, recurrence: Recurrence, cache: KeyValueCache, *, max_steps: int | None, threshold: float | None
    ) -> None:
        assert takes_lanes(recurrence)
        self.recurrence, self.depth = recurrence, recurrence.depth(max_steps)
        self.threshold = check_threshold(recurrence.threshold if threshold is None else threshold)
        self.cache = recurrence.depth_cache(cache, depth=self.depth)
        block = recurrence.blocks[0]
        assert isinstance(block, Block)
        self.block = block
        like, rows = cache.keys, cache.keys.shape[1]
        self.signals = recurrence.coordinates.step_signals(self.depth, device=like.device).to(like.dtype)
        states = like.new_zeros(rows, self.signals.shape[1])
        number = torch.arange(rows, device=like.device)
        self.thinking = Thinking(
            row=number,
            place=torch.zeros_like(number),
            step=torch.zeros_like(number),
            states=states,
            signal=states.clone(),
            output=torch.zeros_like(states, dtype=wide(like.dtype)),
            halting=Halting.start(states.unsqueeze(0), padding=None),
        )
        self.memory: Memory | None = None  # row by row, padded to the longest source so far

    def __len__(self) -> int:
        return len(self.thinking.row)

    def enter(self, states: Rows, *, at: Index, place: Index) -> None:
        """Embedded tokens for the rows ``at``, which begin to think about them; ``place`` tokens stand before each."""
        rows, coordinates = self.thinking, self.recurrence.coordinates
        placed = coordinates.place(place.unsqueeze(0))
        rows.states[at] = coordinates.enter(states.unsqueeze(0), placed).squeeze(0)
        if coordinates.every_step and placed.signal is not None:
            rows.signal[at] = placed.signal.squeeze(0).to(rows.signal.dtype)
        rows.place[at] = place
        rows.step[at] = 0
        rows.output[at] = 0.0
        fresh = Halting.start(states.unsqueeze(0), padding=None)
        halting = [part.index_copy(1, at, new) for part, new in zip(rows.halting, fresh, strict=True)]
        rows.halting = Halting(*halting)

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

    def tick(self, *, stored: int) -> Int[Tensor, "ended"]:
        """One depth step of every row; the rows whose token is through. ``stored``: places that they look at."""
        rows, unit = self.thinking, self.recurrence.halting
        timed = rows.states + rows.signal + self.signals[rows.step]
        ended = rows.step == self.depth - 1
        if unit is not None:
            probability = unit.each(timed.unsqueeze(0))
            stop = (ended & self.recurrence.remainder_at_cap).unsqueeze(0)
            rows.halting, weight = advance(rows.halting, probability, threshold=self.threshold, stop=stop)
            ended = ended | ~rows.halting.running[0]
        rows.states = self.block.forward_rows(
            timed,
            attend=lambda x: self._attend(x, stored=stored),
            look=None if self.memory is None else self._look,
        )
        rows.step = rows.step + 1
        at = ended.nonzero().squeeze(1)
        if unit is None:
            return at
        rows.output = combine(
            rows.output.unsqueeze(0),
            rows.states.unsqueeze(0),
            weight,
            active=torch.ones_like(weight, dtype=torch.bool),
            rule=self.recurrence.output,
        ).squeeze(0)
        base = rows.states[at] + rows.signal[at]
        self.cache.settle(base, step=rows.step[at], row=rows.row[at], place=rows.place[at])
        return at

    def result(self, at: Int[Tensor, "ended"]) -> tuple[Rows, Float[Tensor, "ended"]]:
        """The last states of rows whose token is through, and how many steps it took."""
        rows, norm = self.thinking, self.recurrence.closing_norm
        output = rows.states[at]
        if self.recurrence.halting is not None:
            output = rows.output[at].to(output.dtype)
        return output if norm is None else norm(output), rows.step[at].to(wide(output.dtype))

    def _attend(self, states: Rows, *, stored: int) -> Rows:
        """Each row over the places up to its own, in the slot of its step."""
        module, rows = self.block.attention, self.thinking
        query = self.cache.query(states, step=rows.step, row=rows.row, place=rows.place)
        asked = query.view(len(query), module.num_heads, 1, -1)
        if stored >= LONG and asked.device.type == "cpu":
            return module.output(self._one_by_one(asked).flatten(1))
        key, value = self.cache.slots(rows.step, rows.row, stored=stored)
        seen = torch.arange(stored, device=query.device) <= rows.place.unsqueeze(1)
        mixed = scaled_dot_product_attention(asked, key, value, attn_mask=seen[:, None, None])
        return module.output(mixed.flatten(1))

    def _one_by_one(self, query: Float[Tensor, "row heads 1 head"]) -> Float[Tensor, "row heads 1 head"]:
        """The same without a copy of what is looked at."""
        rows, result = self.thinking, list[Tensor]()
        steps, where, places = rows.step.tolist(), rows.row.tolist(), rows.place.tolist()
        for at, (step, row, place) in enumerate(zip(steps, where, places, strict=True)):
            key, value = self.cache.slot(step, stored=place + 1)
            asked, seen = query[at : at + 1], slice(row, row + 1)
            result.append(scaled_dot_product_attention(asked, key[seen], value[seen]))
        return torch.cat(result)

    def _look(self, states: Rows) -> Rows:
        """Each row over its own source."""
        module, memory = self.block.cross_attention, self.memory
        assert module is not None
        assert memory is not None
        asked = module.query(states).view(len(states), module.num_heads, 1, -1)
        mixed = scaled_dot_product_attention(asked, memory.key, memory.value, attn_mask=memory.mask)
        return module.output(mixed.flatten(1))
