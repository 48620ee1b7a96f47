"""Which way of computing is chosen: whether its result is the same, and whether it saves time.

Nothing here changes a number by more than rounding. Every constant that decides has its measurement, on one core of a
CPU; ``docs/performance.md`` has the tables. Other modules read the constants as ``policy.NAME``.
"""

import math

import torch

from universal_transformer.execution.packing import PackedLinear, is_plain
from universal_transformer.nn.context import AttentionContext
from universal_transformer.nn.ponder import PonderUnit
from universal_transformer.nn.progress import Depth
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
RECOMPUTE_FROM_WIDTH = 256
"""Width from which norms, sums and choices of rows are computed again in the backward pass: matrix products are far
more expensive there. Without it the peak memory of training at width 512, 16 x 64, is 1.39 (post-norm) and 1.44
(pre-norm) times its share, with it 1.30 and 1.36."""
SEPARATE_FROM_KEYS = 256
"""Number of keys from which a CPU computes the attention of running rows for each sequence alone instead of padding
the queries. In inference at width 128: 1.0 to 1.7 times as fast for 4 and 8 sequences of 256 and 512 keys."""
SEPARATE_UP_TO = 3
"""Number of sequences with running rows up to which it does so for any number of keys: 1.0 to 1.3 times as fast for 3
sequences of 64 keys, 0.9 to 1.0 times for sixteen."""
FLOAT32_UP_TO_KEYS = 512
"""Number of keys up to which attention in float32 is faster on a CPU than in 16 bits, forward and backward: 12 ms
instead of 23 (16 x 64), 3 ms instead of 16 (64 x 20)."""
TRANSPOSED_ROWS = (2, 3)
"""Numbers of rows for which a CPU computes ``(W x^T)^T`` in about half of the time of ``x W^T``: the five products of a
step of two rows take 0.8 ms instead of 1.5 (width 512)."""
MOST_GATHERED = 2**19
"""Numbers that rows at different steps attend to together on a CPU: a larger copy does not stay in its cache. Attention
of 64 rows takes 1.4 ms instead of 2.5 (width 512), and 3.8 ms instead of 11.8 with 400 positions."""
PROBED_REQUESTS = 16
"""Requests that are generated in a batch first, to measure the mean number of steps: as many as there are rows by
default, so that the measurement is one batch."""
CONTINUOUS_BELOW = 0.5
"""Mean steps over the largest number up to which depth-continuous generation is faster than batches. One of its calls
costs more, because rows are gathered from different slots and tokens are chosen at every call. With 4 to 64 rows of
width 128 it is 1.1 to 1.4 times as fast at 0.3, and 0.84 to 0.92 times as fast at 0.65."""


def transformed() -> bool:
    """Whether a transform of ``torch.func`` is active: it does not serve our own backward passes."""
    return bool(torch._C._are_functorch_transforms_active())


def shared_call_obstacle(recurrence: Recurrence) -> str | None:
    """Why rows at different depth steps cannot share a call of the block; None if they can.

    They can when steps differ in ``τ_t`` alone and positions interact in attention alone.
    """
    coordinates, block = recurrence.coordinates, recurrence.block
    attentions = [each.attention for each in recurrence.layers]
    projections = [one for each in attentions for one in (each.query_key_value, each.output)]
    plain = all(is_plain(one) or isinstance(one, PackedLinear) for one in projections)
    reasons = {
        "a projection of attention is not a plain torch.nn.Linear": not plain,
        "steps have separate blocks (tied=False)": not recurrence.tied,
        "the transition computes a position from its neighbours": not getattr(block.transition, "pointwise", False),
        "the transition gives 0 at padding (zero_padding)": block.zero_padding,
        "positions are shifted at every step": coordinates.shift_by_step,
        "coordinates are concatenated": coordinates.join is not None,
        'self-attention is added to states without coordinates (step.residual="state")': recurrence.residual != "timed",
        'scores are divided by the square root of the width (attention.scale="width")': block.attention.factor != 1.0,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def compaction_obstacle(
    recurrence: Recurrence, context: AttentionContext | None = None, *, depth: Depth | None = None
) -> str | None:
    """Why leaving out halted positions would change the result, in this call or (without ``context``) in any.

    None if it would not. What other positions see of a halted one must follow from its last state (``projection.py``).
    """
    unit = recurrence.stop_unit(depth)
    if unit is None:
        return "no position halts: the depth is fixed"
    if isinstance(unit, PonderUnit) and unit.training:
        return "in training with the rule ponder all positions make all steps"
    if unit.config.state != "frozen":
        return 'halted positions go on changing (state="evolving")'
    if (reason := shared_call_obstacle(recurrence)) is not None or context is None:
        return reason
    if context.record is not None:
        return "attention weights of all positions are kept"
    if context.states is not None:
        return "states of all positions are kept"
    if context.cache is None and context.mask is not None and context.mask.shape[2] != 1:
        return "a decoder's sequences are padded on the left"
    return None


def compaction_pays_up_to(
    recurrence: Recurrence, context: AttentionContext, *, positions: int, by_sequence: bool = False
) -> int:
    """The largest number of running positions, of ``positions``, at which leaving out the others saves time."""
    block, gradients = recurrence.block, torch.is_grad_enabled()
    width = recurrence.coordinates.sizes.width
    renewed = not block.after_attention.post and recurrence.coordinates.config.step != "none"
    plain = not gradients and not recurrence.training and context.cache is None
    below = COMPACT_BELOW
    if plain and not by_sequence:
        below = PRE_NORM_BELOW if renewed else INFER_BELOW
    least = LEAST_SAVED * GRADIENT_FACTOR ** (int(renewed) + int(gradients))
    least *= ROTARY_FACTOR if recurrence.coordinates.config.rotates else 1
    return min(math.ceil(below * positions) - 1, positions - math.ceil(least / width**2))


def recompute_pays(width: int) -> bool:
    """Whether states are wide enough to compute again in the backward pass what is not a matrix product."""
    return width >= RECOMPUTE_FROM_WIDTH
