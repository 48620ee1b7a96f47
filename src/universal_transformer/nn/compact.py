"""Halting that pays: from the step where enough positions have halted, only those that still run are computed.

Exact, not approximate, for frozen states, tied blocks and the feed-forward transition. A halted position keeps its
state; what others see of it at a later step follows from one projection (``nn/refresh.py``). So queries, projections
and transition run for running positions only. Without gradients and with them the loop is the same: results are added
in place to those of all positions, and what others look at lies in a store that knows the way back (``nn/store.py``),
or in a cache by depth step (``nn/depth_cache.py``).
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from universal_transformer.axes import Float, Index, PerPosition, PerRow, Rows, States, Tensor
from universal_transformer.nn.attention import Memory
from universal_transformer.nn.block import Block
from universal_transformer.nn.depth_cache import DepthCache
from universal_transformer.nn.halting import Halting, HaltingUnit, Output, decide, fold
from universal_transformer.nn.ragged import Layout, find
from universal_transformer.nn.recall import Recall, make
from universal_transformer.nn.refresh import Refresh
from universal_transformer.nn.store import Store
from universal_transformer.nn.view import View
from universal_transformer.nn.worth import recalls


class Stored:
    """What running positions look at, behind a cache: the slot of their step, and the positions of earlier calls."""

    def __init__(self, cache: DepthCache, *, mask: Tensor | None, causal: bool, length: int) -> None:
        self.cache, self.mask, self.causal = cache, mask, causal
        self.before, self.length = cache.cache.length, length

    def attend(self, states: Rows, *, step: int, layout: Layout) -> Rows:
        """Self-attention of running rows, whose keys and values are stored first."""
        module = self.cache.attention
        query = self.cache.query(states, step=step, row=layout.sequence, place=self.place(layout.index))
        key, value = self.cache.slot(step, stored=self.before + self.length)
        dropout = module.dropout if module.training else 0.0
        return module.output(
            layout.attend(query, key, value, mask=self.mask, causal=self.causal, dropout=dropout)
        )

    def place(self, index: Index) -> Index:
        """Where positions of this call stand in the cache."""
        return index % self.length + self.before

    def settle(self, base: Rows, index: Index, *, step: int) -> None:
        """Let what has halted serve the steps from ``step`` on to later calls."""
        if step < self.cache.depth and len(index):
            row = index.div(self.length, rounding_mode="floor")
            self.cache.settle(base, step=step, row=row, place=self.place(index))


def looked_at(
    block: Block, view: View, *, states: States, cache: DepthCache | None, signals: Tensor | None
) -> Store | Stored:
    """What running positions of ``states`` look at: behind a cache, its slots; else a store of their own."""
    if cache is None:
        refresh = Refresh(block, signals=signals)
        return Store(block.attention, refresh, batch=len(states), mask=view.mask, causal=view.causal)
    mask = None if view.cached_padding is None else ~view.cached_padding[:, None, None, :]
    return Stored(cache, mask=mask, causal=states.shape[1] > 1, length=states.shape[1])


class Record:
    """Probabilities, weights and decisions of the rows that ran, step by step."""

    def __init__(self) -> None:
        self.index: list[Tensor] = []
        self.values: tuple[list[Tensor], ...] = [], [], []

    def add(self, index: Index, *values: Tensor) -> None:
        """One step more: probability and weight, and whether the row halted."""
        self.index.append(index)
        for kept, value in zip(self.values, values, strict=True):
            kept.append(value)

    def whole(self, before: Halting) -> tuple[Halting, list[PerPosition], list[PerPosition]]:
        """Where all positions stand in the end (``h`` apart), and probabilities and weights of each step.

        Both are 0 where a position did not run.
        """
        like, steps = before.cumulative, len(self.index)
        size, index = like.numel(), torch.cat(self.index)
        at = torch.cat([index + step * size for step, index in enumerate(self.index)])
        probability, weight, halted = (torch.cat(kept) for kept in self.values)
        remainder = torch.zeros_like(like).flatten().index_add(0, index, weight * halted).view_as(like)
        made = torch.zeros_like(like).flatten().index_add(0, index, torch.ones_like(weight)).view_as(like)
        probabilities, weights = (
            like.new_zeros(steps * size).index_copy(0, at, part).view(steps, *like.shape)
            for part in (probability, weight)
        )
        done = before._replace(remainder=before.remainder + remainder, steps=before.steps + made)
        return done, list(probabilities), list(weights)


def _placed(states: Rows, signal: Float[Tensor, "#batch position width"]) -> Rows:
    """``h + π`` of all positions."""
    return (states.view(-1, *signal.shape[1:]) + signal).flatten(0, 1)


class CompactLoop:
    """The rest of a halting loop, from any step on, over running rows only."""

    def __init__(
        self,
        block: Block,
        unit: HaltingUnit,
        source: Store | Stored,
        *,
        states: States,
        signal: Float[Tensor, "#batch position width"] | None,
        memory: Memory | None,
        again: Callable[..., Any] | None,
    ) -> None:
        self.block, self.unit, self.memory, self.source, self.again = block, unit, memory, source, again
        self.batch, self.length = states.shape[:2]
        self.states = states.flatten(0, 1)
        self.signal = None if signal is None else signal.to(states.dtype)
        learns = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        wide = recalls(states.shape[-1])
        self.recall = Recall(device=states.device) if learns and wide else None

    def probability(self, timed: Rows, layout: Layout) -> PerRow:
        """Halting probability of each row; with ``scope="sequence"`` the mean over its sequence."""
        each = self.unit.each(timed)
        if self.unit.scope == "position":
            return each
        empty = each.new_zeros(self.batch)
        total, count = (empty.index_add(0, layout.sequence, part) for part in (each, torch.ones_like(each)))
        return (total / count.clamp(min=1)).index_select(0, layout.sequence)

    def look(self, states: Rows, layout: Layout) -> Rows:
        """Attention of running rows over the source."""
        module, memory = self.block.cross_attention, self.memory
        assert module is not None
        assert memory is not None
        dropout = module.dropout if module.training else 0.0
        query = module.query(states)
        return module.output(
            layout.attend(query, memory.key, memory.value, mask=memory.mask, dropout=dropout)
        )

    def settle(self, halting: Halting, *, step: int) -> Rows:
        """``b = h + π`` of all positions; those that have halted are made known to whoever looks at them."""
        base = self.states
        if self.signal is not None:
            base = make(self.recall, _placed, self.states, self.signal)
        if isinstance(self.source, Store):
            self.source.renew(None, base, recall=self.recall)
        else:
            rest = (~halting.running & (halting.steps > 0)).flatten().nonzero().squeeze(1)
            self.source.settle(base.index_select(0, rest), rest, step=step)
        return base

    def place(self, index: Index) -> Rows | None:
        """The position part of the rows ``index``."""
        if self.signal is None:
            return None
        shared = len(self.signal) != self.batch  # one row serves all sequences
        where = index % self.length if shared else index
        return make(self.recall, torch.index_select, self.signal.flatten(0, 1), 0, where)

    def run(
        self,
        output: States,
        halting: Halting,
        layout: Layout,
        *,
        steps: range,
        signals: Float[Tensor, "step width"] | None,
        threshold: float,
        remainder_at_cap: bool,
        rule: Output,
    ) -> tuple[States, Halting, list[PerPosition], list[PerPosition]]:
        """Run to the end. ``steps`` are left, ``layout`` says who runs, ``signals`` are those of all steps. Returns the
        output, the halting state, and probabilities and weights of each step made, 0 where a position did not run.
        """
        h, record = halting.cumulative.flatten().index_select(0, layout.index), Record()
        whole = output.to(torch.promote_types(output.dtype, h.dtype), copy=True).flatten(0, 1)
        recall = self.recall
        with nullcontext() if recall is None else recall.around():
            base = self.settle(halting, step=steps.start)
            base, place = make(recall, torch.index_select, base, 0, layout.index), self.place(layout.index)
            for step in steps:
                timed = base if signals is None else make(recall, torch.add, base, signals[step])
                probability = self.probability(timed, layout)
                stop = remainder_at_cap and step == steps[-1]
                h, weight, halted = decide(h, probability, threshold=threshold, stop=stop)
                new = self.block.forward_rows(
                    timed,
                    attend=partial(self.source.attend, step=step, layout=layout),
                    look=None if self.memory is None else partial(self.look, layout=layout),
                    again=self.again,
                    recall=recall,
                )
                fold(whole, layout.index, new, weight, rule=rule)
                record.add(layout.index, probability, weight, halted)
                staying = h < 1.0
                further, kept = layout.choose(staying)
                base = new if place is None else make(recall, torch.add, new, place)
                if isinstance(self.source, Stored) and further is not layout:
                    left = find(~staying, count=len(h) - len(kept))
                    self.source.settle(
                        base.index_select(0, left), layout.index.index_select(0, left), step=step + 1
                    )
                if not len(kept):
                    break
                if isinstance(self.source, Store) and step < steps[-1]:
                    self.source.renew(layout.index, base, recall=recall)
                if further is not layout:
                    layout, base = further, make(recall, torch.index_select, base, 0, kept)
                    h, place = h.index_select(0, kept), self.place(layout.index)
        if recall is not None:
            recall.forget()
        return whole.view(output.shape), *record.whole(halting)
