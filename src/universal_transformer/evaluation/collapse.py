"""Halting that has collapsed: all positions of a side halt at the same step."""

from __future__ import annotations

from universal_transformer.evaluation.report import StepCounts


def collapse(steps: StepCounts, *, max_steps: int) -> str | None:
    """Return a warning if halting has collapsed, which means that all positions halt at the same step."""
    if not steps.num_positions or (how := stuck(steps.mean, steps.spread, max_steps=max_steps)) is None:
        return None
    return f"halting has collapsed: all {steps.side} positions {how}"


def stuck(mean: float, spread: float, *, max_steps: int) -> str | None:
    """Return at which step all positions halt, and a remedy, if this mean and standard deviation show that they do."""
    found = f"(steps {mean:.2f} ± {spread:.2f} of at most {max_steps})"
    if max_steps == 1:
        return None
    if mean < 1.05:
        return f"stop at once {found}: try a smaller halting.bias or training.ponder_weight, or training.halting_delay"
    if mean > 0.99 * max_steps:
        return f"go on to the cap {found}: try a larger halting.bias or training.ponder_weight"
    return f"stop at the same step {found}: try another halting.bias" if spread < 0.01 else None
