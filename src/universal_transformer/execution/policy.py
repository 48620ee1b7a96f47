"""Which way of computing is chosen: whether its result is the same, and whether it saves time.

Nothing here changes a number by more than rounding. Every constant that decides has its measurement, on one core of a
CPU; ``docs/performance.md`` has the tables. Other modules read the constants as ``policy.NAME``.
"""

import math

import torch

from universal_transformer.execution.as_built import changed_module
from universal_transformer.nn.context import Context
from universal_transformer.nn.halting import Rule
from universal_transformer.nn.recurrence import Recurrence

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
SEPARATE_FROM_KEYS = 256
"""Number of keys from which a CPU computes the attention of running rows for each sequence alone instead of padding
the queries. In inference at width 128: 1.0 to 1.7 times as fast for 4 and 8 sequences of 256 and 512 keys."""
SEPARATE_UP_TO = 3
"""Number of sequences with running rows up to which it does so for any number of keys: 1.0 to 1.3 times as fast for 3
sequences of 64 keys, 0.9 to 1.0 times for sixteen."""
FLOAT32_UP_TO_KEYS = 512
"""Number of keys up to which attention in float32 is faster on a CPU than in 16 bits, forward and backward: 12 ms
instead of 23 (16 x 64), 3 ms instead of 16 (64 x 20)."""
MOST_GATHERED = 2**19
"""Numbers that rows at different steps attend to together on a CPU: a larger copy does not stay in its cache. Attention
of 64 rows takes 1.4 ms instead of 2.5 (width 512), and 3.8 ms instead of 11.8 with 400 positions."""


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
        return 'self-attention is added to states without coordinates (step.residual="state")'
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
