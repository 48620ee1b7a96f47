"""As many steps as a sequence has positions (paper, section 4; decision D15)."""

from dataclasses import replace

import torch

from universal_transformer.nn.context import Context
from universal_transformer.nn.halting import Closing, FixedDepth, Number, Progress, Vectors


class AsManyStepsAsPositions(FixedDepth):
    """A sequence of n real positions makes n steps, and keeps its states from then on."""

    frozen = stops = True

    def update(
        self, was: Progress, *, timed: Vectors, new: Vectors, close: Closing, context: Context, step: Number
    ) -> Progress:
        now = super().update(was, timed=timed, new=was.keep(new, was.states), close=close, context=context, step=step)
        running = torch.ones_like(was.steps, dtype=torch.bool) if was.running is None else was.running
        last = context.is_last(step) | torch.zeros_like(running)
        return replace(now, steps=was.steps + running, running=running & ~last)
