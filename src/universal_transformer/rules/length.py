"""As many steps as a sequence has positions (paper, section 4; decision D15)."""

from dataclasses import replace

import torch

from universal_transformer.nn.halting import FixedDepth, Progress, Step


class AsManyStepsAsPositions(FixedDepth):
    """A sequence of n real positions makes n steps, and keeps its states from then on."""

    frozen = stops = True

    def update(self, was: Progress, step: Step) -> Progress:
        now = super().update(was, step._replace(new=was.keep(step.new, was.states)))
        running = torch.ones_like(was.steps, dtype=torch.bool) if was.running is None else was.running
        last = step.context.is_last(step.number) | torch.zeros_like(running)
        return replace(now, steps=was.steps + running, running=running & ~last)
