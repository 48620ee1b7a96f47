"""Halting that has collapsed: the positions of a side no longer choose their numbers of steps.

With the mean ``m`` and the standard deviation ``s`` of N over the positions of a side, and its cap T:

=========  ==========================================  =================================================
kind       condition                                   what it means
=========  ==========================================  =================================================
shallow    ``m < SHALLOW``                             positions stop after one step
deep       ``m > DEEP · T``                            positions go on to the cap
constant   ``s < CONSTANT``                            positions stop at the same step
fake       ``CE > FAKE · Σ_t p_t CE_t + NEGLIGIBLE``   the loss where positions stop is above its expectation
=========  ==========================================  =================================================

The first three are of one side of at least two steps. ``fake`` is of the output of the rule ponder: CE is the
cross-entropy of validation, and the sum its expectation over the steps at which positions may stop. The output of ACT
is a mean of states, and the logits are affine in it, so that its CE is at most this sum (Jensen; with pre-norm a
LayerNorm stands in between). The remainder of ACT is no criterion: it approaches 1 where positions go on to the cap,
and also where they stop after one step.

``results/studies/collapse_warnings.md`` and ``fake_collapse.md`` compare the thresholds with all recorded runs.
"""

from collections.abc import Mapping
from typing import Literal

from universal_transformer.evaluation.scores import Side

Kind = Literal["shallow", "deep", "constant"]

SHALLOW = 1.05
"""Mean number of steps. With 1.2, recorded sides are warned about of which 6 to 12 % of the positions take more than
one."""
DEEP = 0.99
"""Mean number of steps, as a share of the cap. With 0.95, sides are warned about whose positions differ in their
steps."""
CONSTANT = 0.2
"""Standard deviation of the number of steps. Where 5 % of the positions take one step more or less than all others, it
is 0.22. With 0.05, sides are missed of which at least 95 % of the positions take the same number."""
FAKE = 1.1
"""Loss at the exit, as a multiple of its expectation. With 1, exits that take all steps are warned about: the last
steps of a model can be more confident in wrong answers than the steps before."""
NEGLIGIBLE = 0.002
"""Excess of the loss at the exit, in nats a target, that is ignored: that of 0.1 % wrong targets with a loss of 2 each.
Without it, exits without any error are warned about where all losses are small."""

FITTED = (
    "train with --halting.side none --step-loss mean, and then the halting unit alone: ut train RUN --stage halting"
)
"""What keeps the accuracy of the full depth: positions then stop where later steps do not predict better."""
MEANING: Mapping[Kind, tuple[str, str]] = {
    "shallow": (
        "stop after the first step",
        "compare with a fixed depth (halting.side=none); if that is better, " + FITTED + "; or try a smaller "
        "halting.bias or training.ponder_weight, or training.halting_delay",
    ),
    "deep": (
        "go on to the cap",
        "a fixed depth costs the same; for fewer steps, " + FITTED + "; or try a larger halting.bias or "
        "training.ponder_weight",
    ),
    "constant": (
        "stop at the same step",
        "a fixed depth of as many steps does the same; for depths that differ, " + FITTED + "; or try a smaller "
        "halting.bias, with which positions take more steps",
    ),
}
"""Kind -> what the positions of the side do, and what to do about it."""


def collapse(mean: float, spread: float, *, side: Side, max_steps: int) -> tuple[Kind, str] | None:
    """Return how the halting of a side has collapsed, given the mean and the standard deviation of N, and in words what
    its positions do and what to do about it; None if it has not.
    """
    kind: Kind
    if mean < SHALLOW:
        kind = "shallow"
    elif mean > DEEP * max_steps:
        kind = "deep"
    else:
        kind = "constant"
    if max_steps == 1 or (kind == "constant" and spread >= CONSTANT):
        return None
    what, remedy = MEANING[kind]
    steps = f"steps {mean:.2f} ± {spread:.2f} of at most {max_steps}"
    return kind, f"nearly all {side} positions {what} ({steps}): {remedy}"


def fake(cross_entropy: float, *, expected: float) -> str | None:
    if cross_entropy <= FAKE * expected + NEGLIGIBLE:
        return None
    return (
        f"halting has collapsed (fake): the validation loss where positions stop is {cross_entropy:.4f}, far above its "
        f"expectation over all steps, {expected:.4f}: positions stop too early; try a larger halting.quantile"
    )
