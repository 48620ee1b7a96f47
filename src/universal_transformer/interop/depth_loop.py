"""The loop over depth as one operation of an exported graph, which ends when the last position has halted.

Only exported models use it: called eagerly, ``torch.while_loop`` does not serve every length, and its gradients can be
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch._higher_order_ops import while_loop

from universal_transformer.axes import Float, Padding, States, Tensor
from universal_transformer.nn.attention import ProjectedSource
from universal_transformer.nn.context import AttentionContext
from universal_transformer.nn.halting import Halting, combine, output_term
from universal_transformer.nn.progress import Depth, HaltingProgress, decide
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.trace import Trace


def depth_loop(
    recurrence: Recurrence, states: States, context: AttentionContext, *, depth: Depth, padding: Padding | None
) -> tuple[States, Trace] | None:
    """As :meth:`Recurrence.halting_loop`; None where no position halts.

    The trace has steps and remainders, no probabilities and no weights.
    """
    if recurrence.stop_unit(depth) is None:
        return None
    signals = recurrence.coordinates.step_signals(depth.max_steps, like=states)
    context = _without_views(context)

    def runs(step: Tensor, *carried: Tensor) -> Tensor:
        return (step < depth.max_steps) & _progress(carried).halting.running.any()

    def body(step: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        signal = None if signals is None else signals.index_select(0, step.unsqueeze(0))
        progress = _one_step(
            recurrence,
            context,
            _progress(carried),
            step=step,
            depth=depth,
            padding=padding,
            signal=signal,
        )
        return step + 1, *_carried(progress)

    start = _carried(
        HaltingProgress.start(states, unit=recurrence.unit, blocks=recurrence.blocks_per_step, padding=padding)
    )
    first = torch.zeros((), dtype=torch.int64, device=states.device)
    _, *carried = while_loop(runs, body, (first, *start))  # type: ignore[no-untyped-call]
    found = _progress(carried)
    return found.output.to(states.dtype), Trace(found.halting.steps, found.halting.remainder, padding)


def _carried(progress: HaltingProgress) -> tuple[Tensor, ...]:
    """``progress`` as tensors, each in memory of its own."""
    parts = (progress.states, progress.output, *progress.halting, *progress.entered)
    return tuple(part.clone() for part in parts)


def _progress(carried: Sequence[Tensor]) -> HaltingProgress:
    """The inverse of :func:`_carried`."""
    states, output, *others = carried
    count = len(Halting._fields)
    return HaltingProgress(states, output, Halting(*others[:count]), entered=tuple(others[count:]))


def _one_step(
    recurrence: Recurrence,
    context: AttentionContext,
    before: HaltingProgress,
    *,
    step: Tensor,
    depth: Depth,
    padding: Padding | None,
    signal: Float[Tensor, "1 channels"] | None,
) -> HaltingProgress:
    """What follows ``before`` after ``step``, a tensor; ``signal``: τ of this step. All steps share their blocks."""
    states, output, halting = before.states, before.output, before.halting
    unit, active = recurrence.unit, halting.running
    rule, last = unit.config.output, (step == depth.max_steps - 1).expand_as(active)
    timed = recurrence.coordinates(states, context.encoding, step=0, num_steps=1, signals=signal)
    instead = recurrence.substitutes(states)
    new, entered = recurrence.step(timed, context, step=0, running=active, entered=before.entered, instead=instead)
    probability = unit(timed if unit.reads == "timed" else recurrence.close(new), padding=padding)
    _, decision = decide(unit, halting.cumulative, probability, depth=depth, step=step, is_last=last)
    halting, weight = halting.advance(decision)
    made = combine(output, output_term(new, weight, rule=rule), weight, rule=rule)
    if rule == "final":
        made = torch.where(active.unsqueeze(-1), made, output)
    if unit.config.state == "frozen":
        new = torch.where(active.unsqueeze(-1), new, states)
    return HaltingProgress(new, made, halting, entered=entered)


def _without_views(context: AttentionContext) -> AttentionContext:
    """Keys and values of the source in memory of their own: ``while_loop`` refuses tensors that share it."""
    if context.source is None:
        return context
    source = [ProjectedSource(each.key.clone(), each.value.clone(), each.mask) for each in context.source]
    return replace(context, source=source)
