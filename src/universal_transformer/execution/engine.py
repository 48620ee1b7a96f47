"""One step of the running positions, at any position of any sequence and at any step.

Exact, not approximate (``docs/model.md`` has the derivation): a halted position keeps its state, and what others attend
to at a later step follows from one projection. So queries, projections and transition are computed for running rows
only.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from universal_transformer.axes import Bool, Float, Int, PerRow, Rows, Tensor
from universal_transformer.execution.recompute import Recompute, compute, normalise
from universal_transformer.execution.rows import BatchLayout, RowState
from universal_transformer.nn.block import Block, Sublayer
from universal_transformer.nn.halting import combine, output_term
from universal_transformer.nn.progress import Depth, decide
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.stick_breaking import expected_state

Attend = Callable[..., Rows]
"""The attention of rows of states. ``shown=…``: what keys and values are computed from, where other than the states."""


class RowAttention(NamedTuple):
    """What computes the attention of the rows in one block: to their own sequence, and to the source."""

    own: Attend
    source: Attend | None


class StepResult(NamedTuple):
    """What a step decided: probability, weight, whether the halting rule stopped a row, and whether it goes on."""

    probability: PerRow
    weight: PerRow
    halts: Bool[Tensor, "row"]
    running: Bool[Tensor, "row"]


class RowEngine:
    """Makes steps of rows. ``signals``: τ of all steps. ``checkpoint``: ``call_checkpointed`` or None.

    ``lengths``: how many steps the rows of each sequence make at most, if fewer than the depth.
    """

    def __init__(
        self,
        recurrence: Recurrence,
        *,
        depth: Depth,
        signals: Float[Tensor, "step width"] | None,
        recompute: Recompute | None = None,
        checkpoint: Callable[..., Any] | None = None,
        lengths: Int[Tensor, "batch"] | None = None,
    ) -> None:
        self.blocks, self.unit, self.close = recurrence.tied_blocks, recurrence.stop_unit(depth), recurrence.close
        self.depth, self.signals, self.lengths = depth, signals, lengths
        self.recompute, self.checkpoint = recompute, checkpoint

    def step(
        self,
        rows: RowState,
        *,
        attention: Sequence[RowAttention],
    ) -> StepResult | None:
        """One depth step of every row, in place; None without halting.

        ``attention`` has one entry for each block of a step.
        """
        new = timed = rows.base
        shown = rows.shown
        if self.signals is not None:
            signal = self.signals[rows.step] if isinstance(rows.step, int) else self.signals.index_select(0, rows.step)
            new = timed = compute(self.recompute, torch.add, rows.base, signal)
            shown = None if shown is None else shown + signal
        for block, attend in zip(self.blocks, attention, strict=True):
            new = self._block(block, new, attend, shown)
        result = None
        if self.unit is None:
            rows.output = new
        else:
            result = self._halt(rows, timed, new)
        rows.step = rows.step + 1
        if rows.signal is not None:
            rows.base = compute(self.recompute, torch.add, new, rows.signal)
        elif isinstance(rows.layout, BatchLayout):
            rows.base = new
        else:  # `RowStream.enter` writes into the base, and the output or the memory of the rule may be `new` itself
            rows.base = new.clone()
        return result

    def _halt(self, rows: RowState, timed: Rows, new: Rows) -> StepResult:
        """The halting rule, and the new state's term of the output."""
        assert self.unit is not None
        rule, depth = self.unit.config.output, self.depth
        read = timed if self.unit.reads == "timed" else self.close(new)
        probability, rows.unit_state = self.unit.halting_probability(read, rows.unit_state, sequences=rows.layout)
        steps = depth.max_steps if self.lengths is None else self.lengths.index_select(0, rows.layout.sequence)
        last = rows.step == steps - 1
        probability, decision = decide(
            self.unit, rows.cumulative, probability, depth=depth, step=rows.step, is_last=last
        )
        term = output_term(new.to(rows.output.dtype), decision.weight, rule=rule)
        if rows.shown is not None:
            before = rows.output
            if isinstance(rows.layout, BatchLayout):
                before = before.index_select(0, rows.layout.index)
            mean = expected_state(before, new, rows.cumulative)
            rows.shown = mean if rows.signal is None else mean + rows.signal
        rows.cumulative = decision.cumulative
        if not isinstance(rows.layout, BatchLayout):
            rows.output = combine(rows.output, term, decision.weight, rule=rule)
        elif rule == "mean":  # as `combine`, in place
            rows.output.index_add_(0, rows.layout.index, term)
        else:
            index = rows.layout.index
            combined = combine(rows.output.index_select(0, index), term, decision.weight, rule=rule)
            rows.output.index_copy_(0, index, combined)
        return StepResult(probability, decision.weight, decision.halts, decision.cumulative < 1.0)

    def _block(self, block: Block, states: Rows, attend: RowAttention, shown: Rows | None) -> Rows:
        """The block, as ``Block.forward`` computes it."""
        own = attend.own
        if shown is not None:
            seen = shown if block.after_attention.post else block.after_attention.norm(shown)
            own = partial(attend.own, shown=seen)
        states = self._sublayer(block.after_attention, states, own, self.recompute)
        if self.checkpoint is None:
            return self._after_attention(block, states, attend.source, self.recompute)
        return self.checkpoint(self._after_attention, block, states, attend.source, None)

    def _after_attention(
        self, block: Block, states: Rows, attend_source: Attend | None, recompute: Recompute | None
    ) -> Rows:
        if block.after_cross_attention is not None and attend_source is not None:
            states = self._sublayer(block.after_cross_attention, states, attend_source, recompute)
        return self._sublayer(block.after_transition, states, block.transition, recompute)

    def _sublayer(self, layer: Sublayer, states: Rows, function: Attend, recompute: Recompute | None) -> Rows:
        if layer.post:
            return normalise(layer.norm, layer.residual(states) + layer.dropout(function(states)), recompute)
        return states + layer.dropout(function(normalise(layer.norm, states, recompute)))
