"""The recurrence over depth: the same step, a fixed number of times or until every position has halted.

``H^t = Step(H^{t-1} + P^t)`` for ``t = 1 … T`` (paper, section 2). One class serves encoder and decoder, tied (the
Universal Transformer) and untied (each step has its own blocks: the Transformer), fixed depth and halting: a recurrence
knows the step, a rule (`nn/halting.py`) knows the halting, and the loop knows nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from universal_transformer.axes import Padding, States, Tensor, Vectors
from universal_transformer.nn.block import Block
from universal_transformer.nn.context import Angles, Context, Depth, Number, ProjectedSource
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.halting import Made, Progress, Rule, Step
from universal_transformer.nn.trace import Trace

Loop = Callable[["Recurrence", States, Context], Progress]
"""``loop(recurrence, states, context)`` returns the progress after the last step, with what a trace reads of each step.
`execution/` and `interop/` have loops of this signature."""


def depth_loop(
    recurrence: "Recurrence", states: States, context: Context, *, runs: Callable[[Tensor], Any] = torch.any
) -> Progress:
    """Every step computes all positions, and the rule keeps what those that have halted have; ``runs``: whether any do.

    With a cache the loop makes all steps, because later positions may run longer and then attend to these positions at
    every step.
    """
    rule = context.depth.rule
    now = rule.start(states, context.idle, blocks=recurrence.blocks_per_step)
    history = []
    for step in range(context.depth.max_steps):
        if step and rule.stops and context.cache is None and not runs(now.running):
            break
        now = recurrence.advance(now, context, step=step)
        history.append(Made(now.probability, now.weight, now.seen if context.keep_states else None))
    return now._replace(history=tuple(history))


class Recurrence(nn.Module):
    """Coordinates, then a step of ``blocks_per_step`` blocks, ``depth.max_steps`` times.

    ``blocks`` holds the blocks of one step when tied, and ``max_steps`` times as many when not. ``halting``: the rule
    by which positions stop. ``closing_norm`` ends a pre-norm model. ``residual``: what the functions of a step are
    added to (D5). ``checkpointed``: what a step computes inside is not kept for the backward pass but computed again.
    """

    loop: Loop = staticmethod(depth_loop)
    blocks: Any

    def __init__(
        self,
        coordinates: Coordinates,
        blocks: Sequence[Block],
        *,
        depth: Depth,
        blocks_per_step: int = 1,
        closing_norm: nn.Module | None = None,
        residual: str = "timed",
    ) -> None:
        super().__init__()
        self.coordinates, self.blocks = coordinates, nn.ModuleList(blocks)
        self.tied = len(self.blocks) == blocks_per_step
        self.blocks_per_step, self.residual = blocks_per_step, residual
        self.closing_norm, self.halting = closing_norm, depth.rule
        self.trained_depth, self.checkpointed = depth, False

    def depth(
        self,
        *,
        max_steps: int | None = None,
        min_steps: int | None = None,
        threshold: float | None = None,
        exit: Rule | None = None,
    ) -> Depth:
        """The depth of a call, by default as trained. ``exit``: a rule that replaces the one of the model."""
        trained, rule = self.trained_depth, self.halting if exit is None else exit
        steps = trained.max_steps if max_steps is None else max_steps
        assert self.tied or steps * self.blocks_per_step <= len(self.blocks), "an untied step has blocks of its own"
        return Depth(
            rule,
            steps,
            min(max(trained.min_steps if min_steps is None else min_steps, rule.first_step), steps),
            trained.threshold if threshold is None else threshold,
        )

    @property
    def layers(self) -> list[Block]:
        """All blocks, in the order of their numbers."""
        return list(self.blocks)

    def num_slots(self, max_steps: int) -> int:
        """Applications of a block in one pass: how many sets of keys and values a cache holds."""
        return max_steps * self.blocks_per_step

    def project_source(
        self, source: States, *, padding: Padding | None = None, rotary: Angles | None = None
    ) -> list[ProjectedSource]:
        """Source keys and values for every block."""
        attentions = [block.cross_attention for block in self.layers]
        return [each.project_source(source, padding=padding, rotary=rotary) for each in attentions if each is not None]

    def forward(self, states: States, context: Context) -> tuple[States, Trace]:
        """The states after the last step, and the trace."""
        signals = self.coordinates.signals(context.depth.max_steps, like=states)
        context = replace(context, signals=signals, attended={} if self.residual == "previous" else None)
        last = self.loop(self, self.enter(states, context), context)
        assert last.output is not None
        return self.leave(last.output.to(states.dtype), context), Trace.of(last, context, close=self.close)

    def enter(self, states: States, context: Context) -> States:
        """``H^0``, from the inputs."""
        return self.coordinates.start(states, context.encoding)

    def leave(self, states: States, context: Context) -> States:
        """What a model reads, from the output of the rule."""
        del context
        return self.close(states)

    def close(self, states: Vectors) -> Vectors:
        """The closing norm, where there is one: states as the output reads them."""
        return states if self.closing_norm is None else self.closing_norm(states)

    def advance(self, was: Progress, context: Context, *, step: Number) -> Progress:
        """What follows ``was`` after a step. Without an output in ``was`` it has none either: a checkpointed step
        computes the rest by this method, and keeps what it was given in place of what it computed.

        With frozen states, other positions attend to a position that halted after step N as follows: in the first block
        to its last state, ``H^N + P^t``, and in each later block to what entered it at step N (decisions D9 and D14).
        """
        rule, count = context.depth.rule, self.blocks_per_step
        keeps_nothing = context.cache is None and context.record is None
        if self.checkpointed and keeps_nothing and was.output is not None and torch.is_grad_enabled():
            now = checkpoint(self.advance, was.carried(), context, step=step, use_reentrant=False)
            return rule.combine(was, now)
        new = timed = self.coordinates(was.states, context.encoding, step=step, signals=context.signals)
        shown = was.shown
        if shown is not None:
            shown = self.coordinates(shown, context.encoding, step=step, signals=context.signals)
        residual = None if self.residual == "timed" else was.states
        first, inputs = (0 if self.tied else step * count), []
        for number in range(count):
            if number:
                new = was.keep(new, was.inputs[number - 1]) if was.inputs else new
                inputs.append(new)
            new = self.blocks[first + number](
                new, context, seen=shown, residual=residual, slot=step * count + number, layer=first + number
            )
            shown = residual = None
        now = rule.update(was, Step(timed, new, step, context, self.close))
        if was.inputs:
            now = now._replace(inputs=tuple(inputs))
        return now if was.output is None else rule.combine(was, now)
