"""As many steps as a sequence has positions (paper, section 4; decision D15)."""

from dataclasses import replace

import torch

from universal_transformer.errors import UserError
from universal_transformer.nn.context import Context
from universal_transformer.nn.halting import FixedDepth, Progress, Step


class AsManyStepsAsPositions(FixedDepth):
    """A sequence of n real positions makes n steps, and keeps its states from then on."""

    frozen = stops = True

    def update(self, was: Progress, step: Step) -> Progress:
        now = super().update(was, step._replace(new=was.keep(step.new, was.states)))
        running = torch.ones_like(was.steps, dtype=torch.bool) if was.running is None else was.running
        last = step.context.is_last(step.number) | torch.zeros_like(running)
        return now._replace(steps=was.steps + running, running=running & ~last)


def of_lengths(context: Context, *, positions: int) -> Context:
    """``context`` of a call whose sequences make at most as many steps as they have positions; UserError for longer
    ones than its depth allows.
    """
    depth, most = context.depth, max(1, positions)
    if positions > depth.max_steps:
        raise UserError(f'max_steps="length": a sequence of {positions:,} positions; at most {depth.max_steps:,} steps')
    depth = depth._replace(max_steps=most, min_steps=min(depth.min_steps, most))
    lengths = None if context.padding is None else (~context.padding).sum(dim=1)
    return replace(context, depth=depth, lengths=lengths)
