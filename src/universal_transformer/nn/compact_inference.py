"""The compact loop without gradients: the same equations as ``nn/compact.py``, in place and with fewer operations.

What a step signal ``τ_t`` adds is constant over rows, so it is projected once for all steps:
``Q = (h + π) W_Q + τ_t W_Q``, and behind the attention ``(A + τ_t W_V) W_O = A W_O + τ_t W_V W_O``. Queries, keys and
values of a row then come from the one product ``(h + π) W``, computed when its state is new.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import linear

from universal_transformer.axes import Bool, Float, Int, PerPosition, States, Tensor
from universal_transformer.nn.attention import Memory, SelfAttention, split_heads
from universal_transformer.nn.block import Block
from universal_transformer.nn.halting import Halting, HaltingUnit, Output
from universal_transformer.nn.ragged import Layout, Rows

Stored = Float[Tensor, "position width"]
FEW = 256
"""Rows up to which one product for queries, keys and values costs less than two that leave out unused queries."""


class StepParts(NamedTuple):
    """What each step adds: to the state, to the query, and to the output of attention."""

    signal: Float[Tensor, "step width"]
    query: Float[Tensor, "step width"]
    mixed: Float[Tensor, "step width"]

    @classmethod
    def of(cls, signal: Float[Tensor, "step width"], attention: SelfAttention) -> "StepParts":
        """Those of all steps."""
        width, weight = attention.query_key_value.in_features, attention.query_key_value.weight
        value = linear(signal, weight[2 * width :])
        return cls(signal, linear(signal, weight[:width]), linear(value, attention.output.weight))


class Rest(NamedTuple):
    """Results of all positions; rows are written when they leave."""

    output: Rows
    cumulative: Float[Tensor, "row"]
    remainder: Float[Tensor, "row"]
    steps: Float[Tensor, "row"]

    @classmethod
    def of(cls, output: States, halting: Halting) -> "Rest":
        """A copy of what the steps before have left."""
        wide = torch.promote_types(output.dtype, halting.cumulative.dtype)
        flat = [part.flatten().clone() for part in halting[:3]]
        return cls(output.flatten(0, 1).to(wide, copy=True), *flat)

    def leave(self, index: Int[Tensor, "row"], results: "Rest", *, rows: Int[Tensor, "left"] | None) -> None:
        """Write the results of the positions ``index``: of its ``rows`` only, if given."""
        if rows is not None:
            index, results = (
                index.index_select(0, rows),
                Rest(*(part.index_select(0, rows) for part in results)),
            )
        for whole, part in zip(self, results, strict=True):
            whole.index_copy_(0, index, part)


class Record:
    """Probabilities and weights of the rows that ran, step by step."""

    def __init__(self) -> None:
        self.index: list[Tensor] = []
        self.values: tuple[list[Tensor], list[Tensor]] = [], []

    def add(self, index: Int[Tensor, "row"], *values: Float[Tensor, "row"]) -> None:
        """One step more."""
        self.index.append(index)
        for kept, value in zip(self.values, values, strict=True):
            kept.append(value)

    def whole(self, like: PerPosition) -> tuple[list[PerPosition], list[PerPosition]]:
        """One tensor a step, 0 where a position did not run."""
        steps, size = len(self.index), like.numel()
        at = torch.cat([index + step * size for step, index in enumerate(self.index)])
        probabilities, weights = (
            like.new_zeros(steps * size).index_copy_(0, at, torch.cat(kept)).view(steps, *like.shape)
            for kept in self.values
        )
        return list(probabilities), list(weights)


class CompactInference:
    """The rest of a halting loop over running rows only, in evaluation mode and without gradients."""

    def __init__(
        self,
        block: Block,
        unit: HaltingUnit,
        *,
        states: States,
        signal: Float[Tensor, "#batch position width"] | None,
        mask: Bool[Tensor, "..."] | None,
        causal: bool,
        memory: Memory | None,
    ) -> None:
        self.block, self.unit, self.memory = block, unit, memory
        self.batch, self.length, _ = states.shape
        self.mask, self.causal = mask, causal
        self.states = states.flatten(0, 1)
        self.signal = None
        if signal is not None:
            self.signal = signal.to(states.dtype).expand_as(states).reshape(self.states.shape)

    def step(
        self,
        timed: Rows,
        query: Rows,
        keys: Stored,
        values: Stored,
        *,
        mixed: Float[Tensor, "width"] | None,
        layout: Layout,
    ) -> Rows:
        """The block for running rows; ``mixed`` is what the step adds behind attention."""
        block = self.block
        heads = block.attention.num_heads
        key, value = (
            split_heads(part.view(self.batch, self.length, -1), num_heads=heads) for part in (keys, values)
        )
        attended = block.attention.output(
            layout.attend(query, key, value, mask=self.mask, causal=self.causal)
        )
        attended = attended + timed
        if mixed is not None:
            attended += mixed
        states = block.after_attention.norm(attended)
        if block.cross_attention is not None and block.after_cross_attention is not None and self.memory:
            looked, memory = block.cross_attention, self.memory
            seen = layout.attend(looked.query(states), memory.key, memory.value, mask=memory.mask)
            states = block.after_cross_attention.norm(states + looked.output(seen))
        return block.after_transition.norm(states + block.transition(states.unsqueeze(0)).squeeze(0))

    def run(
        self,
        output: States,
        halting: Halting,
        *,
        first: int,
        signals: Float[Tensor, "step width"] | None,
        num_steps: int,
        threshold: float,
        remainder_at_cap: bool,
        rule: Output,
    ) -> tuple[States, Halting, list[PerPosition], list[PerPosition]]:
        """As :meth:`universal_transformer.nn.compact.CompactLoop.run`."""
        attention, rest = self.block.attention, Rest.of(output, halting)
        parts = None if signals is None else StepParts.of(signals.to(self.states.dtype), attention)
        index = halting.running.flatten().nonzero().squeeze(1)
        place = None if self.signal is None else self.signal.index_select(0, index)
        base = self.states if self.signal is None else self.states + self.signal
        keys, values = attention.keys_values(base)
        base = base.index_select(0, index)
        query = attention.queries(base)
        collected, h = rest.output.index_select(0, index), rest.cumulative.index_select(0, index)
        layout, record = Layout.of(index, batch=self.batch, length=self.length), Record()
        for number in range(num_steps):
            timed = base if parts is None else base + parts.signal[number]
            asked = query if parts is None else query + parts.query[number]
            mixed = None if parts is None else parts.mixed[number]
            probability = self.unit.each(timed.unsqueeze(0)).squeeze(0)
            new = self.step(timed, asked, keys, values, mixed=mixed, layout=layout)
            last = number == num_steps - 1
            h, weight, remainder = _advance(
                h, probability, threshold=threshold, stop=remainder_at_cap and last
            )
            collected = _combine(collected, new, weight, rule=rule)
            record.add(index, probability, weight)
            staying = (h < 1.0).nonzero().squeeze(1)
            last = last or not len(staying)
            if last or len(staying) < len(index):
                rows = None if last or len(index) <= FEW else (h >= 1.0).nonzero().squeeze(1)
                results = Rest(collected, h, remainder, torch.full_like(h, first + number + 1))
                rest.leave(index, results, rows=rows)
            if last:
                break
            base = new if place is None else new + place
            query = self._renew(base, index, staying, keys, values)
            if len(staying) < len(index):
                index, h = index.index_select(0, staying), h.index_select(0, staying)
                base, collected = base.index_select(0, staying), collected.index_select(0, staying)
                place = None if place is None else place.index_select(0, staying)
                layout = Layout.of(index, batch=self.batch, length=self.length)
        running = (rest.cumulative < 1.0).view_as(halting.running) & halting.running
        cumulative, remainder, made = (part.view_as(running) for part in rest[1:])
        done = Halting(cumulative, remainder, made, running)
        return rest.output.view(output.shape), done, *record.whole(halting.cumulative)

    def _renew(
        self,
        base: Rows,
        index: Int[Tensor, "row"],
        staying: Int[Tensor, "kept"],
        keys: Stored,
        values: Stored,
    ) -> Float[Tensor, "kept width"]:
        """Write keys and values of new states; the queries of the rows that stay, without step part."""
        attention = self.block.attention
        whole = len(staying) == len(index)
        if whole or len(index) <= FEW:
            query, key, value = attention.query_key_value(base).chunk(3, dim=-1)
            query = query if whole else query.index_select(0, staying)
        else:
            key, value = attention.keys_values(base)
            query = attention.queries(base.index_select(0, staying))
        keys.index_copy_(0, index, key)
        values.index_copy_(0, index, value)
        return query


def _advance(
    h: Float[Tensor, "row"], probability: Float[Tensor, "row"], *, threshold: float, stop: bool
) -> tuple[Float[Tensor, "row"], Float[Tensor, "row"], Float[Tensor, "row"]]:
    """:func:`universal_transformer.nn.halting.advance` where all rows run: the sums, the weights, the remainders."""
    total, left = h + probability, 1.0 - h
    if stop:
        return torch.ones_like(h), left, left
    over = total > threshold
    return total.masked_fill_(over, 1.0), torch.where(over, left, probability), left * over


def _combine(collected: Rows, new: Rows, weight: Float[Tensor, "row"], *, rule: Output) -> Rows:
    """:func:`universal_transformer.nn.halting.combine` where all rows are active."""
    made, share = new.to(collected.dtype), weight.unsqueeze(1)
    if rule == "final":
        return made
    return (
        torch.addcmul(collected, share, made) if rule == "mean" else share * made + (1.0 - share) * collected
    )
