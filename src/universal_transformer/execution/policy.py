"""Which way of computing is chosen: whether its result is the same, and whether it saves time.

Nothing here changes a number by more than rounding. Every constant that decides has its measurement, on one core of a
CPU; ``docs/performance.md`` has the tables. Other modules read the constants as ``policy.NAME``.
"""

import math

import torch
from torch import nn

from universal_transformer.nn.context import Context
from universal_transformer.nn.coordinates import PositionEncoder, StepEncoder
from universal_transformer.nn.halting import Rule
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.torch_private import has_global_hooks, is_unchanged

COMPACT_BELOW = 0.75
"""Share of running positions below which halted ones are left out in training and with a cache: above it, moving rows
costs what leaving them out saves (`ut bench halting`, training)."""
INFER_BELOW = 0.95
"""The same where neither gradients nor a cache are kept (`ut bench halting`, inference with little to save)."""
PRE_NORM_BELOW = 0.85
"""The same for pre-norm: halted positions look different at every step, which costs about a tenth of a step."""
LEAST_SAVED = 2**17
"""Least number of halted positions times squared width: below it a step costs as much as starting its operations."""
GRADIENT_FACTOR = 4
"""LEAST_SAVED is multiplied by this with gradients, and again with pre-norm: a step then starts more operations."""
ROTARY_FACTOR = 2
"""And with rotary positions, where queries and keys are rotated in each step: without it 4 x 16 positions of width 128
with 0.8 of the steps take 1.1 times the time of the masked loop, and with it 1.04 times at most."""
MOST_GATHERED = 2**19
"""Numbers that rows at different steps attend to together on a CPU: a larger copy does not stay in its cache. Attention
of 64 rows takes 1.4 ms instead of 2.5 (width 512), and 3.8 ms instead of 11.8 with 400 positions."""


KNOWN = frozenset({nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.ModuleList})
"""Classes of torch whose modules fast execution computes by their parameters."""


def changed_module(recurrence: Recurrence) -> str | None:
    """What a user has changed of a recurrence that is being computed, as a reason; None if all is as it was built.

    Fast execution does not call every module, and calls others with rows in place of a batch. A user who hooks,
    replaces, wraps or parametrizes a module wants each call of it to mean what it says, so that the plain loop runs.
    """
    if has_global_hooks():
        return "hooks are called for all modules"
    if (found := _changed(recurrence, whole=False)) is None:
        return None
    name, kind = found
    return f"{name} ({kind}) is not as it was built: replaced, wrapped, hooked or parametrized"


def _changed(module: nn.Module, *, whole: bool) -> tuple[str, str] | None:
    """Name and class of the first module inside ``module`` that is not as built.

    Its class is in ``KNOWN`` or says so itself, where a subclass inherits nothing: ``by_rows`` (fast execution knows
    it), or ``pointwise`` and the protocols of rules, positions and steps. The latter are called as a ``whole``, and
    their parts may be of any class.
    """
    for name, part in module._modules.items():
        if part is None:
            continue
        kind, inside = type(part), whole
        if not whole and kind not in KNOWN and not kind.__dict__.get("by_rows"):
            inside = "pointwise" in kind.__dict__ or issubclass(kind, Rule | PositionEncoder | StepEncoder)
            if not inside:
                return name, kind.__name__
        if not is_unchanged(part):
            return name, kind.__name__
        if part._modules and (found := _changed(part, whole=inside)) is not None:
            return f"{name}.{found[0]}", found[1]
    return None


def row_obstacle(recurrence: Recurrence, rule: Rule) -> str | None:
    """Why running positions cannot be computed alone, at one depth step or at several; None if they can.

    They can when steps differ in ``τ_t`` alone, positions interact in attention alone, and what other positions see of
    a halted one follows from its last state (``projection.py``).
    """
    if (reason := changed_module(recurrence)) is not None:
        return reason
    if not recurrence.tied:
        return "steps have separate blocks (tied=False)"
    if recurrence.residual != "timed":
        return f'step.residual="{recurrence.residual}": the sums of a step have states without coordinates'
    if any(block.attention.factor != 1.0 for block in recurrence.blocks):
        return 'scores are divided by the square root of the width (attention.scale="width")'
    if not all(block.transition.pointwise for block in recurrence.blocks):
        return "the transition computes a position from its neighbours"
    return rule.obstacle if rule.stops else None


def compaction_obstacle(recurrence: Recurrence, context: Context) -> str | None:
    """Why leaving out halted positions would change the result of a call; None if it would not."""
    if context.record is not None:
        return "attention weights of all positions are kept"
    if context.keep_states:
        return "states of all positions are kept"
    if context.cache is None and context.mask is not None and context.mask.shape[2] != 1:
        return "a decoder's sequences are padded on the left"
    return row_obstacle(recurrence, context.depth.rule)


def compaction_pays_up_to(recurrence: Recurrence, context: Context, *, positions: int) -> int:
    """The largest number of running positions, of ``positions``, at which leaving out the others saves time."""
    block, gradients = recurrence.blocks[0], torch.is_grad_enabled()
    width = block.attention.query_key_value.in_features
    renewed = block.after_attention.closes and context.signals is not None
    plain = not gradients and not recurrence.training and context.cache is None
    below = COMPACT_BELOW
    if plain and context.depth.rule.scope == "position":
        below = PRE_NORM_BELOW if renewed else INFER_BELOW
    least = LEAST_SAVED * GRADIENT_FACTOR ** (int(renewed) + int(gradients))
    least *= ROTARY_FACTOR if context.encoding.rotary is not None else 1
    return min(math.ceil(below * positions) - 1, positions - math.ceil(least / width**2))
