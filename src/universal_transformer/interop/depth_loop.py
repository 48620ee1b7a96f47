"""The loop over depth as one operation of an exported graph, which ends when the last position has halted.

Only exported models use it: called eagerly, ``torch.while_loop`` does not serve every length, and its gradients can be
wrong.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch._higher_order_ops import while_loop

from universal_transformer.axes import Float, Padding, States, Tensor
from universal_transformer.nn.attention import ProjectedSource
from universal_transformer.nn.context import AttentionContext
from universal_transformer.nn.halting import Halting, combine, weigh
from universal_transformer.nn.recurrence import Depth, Recurrence
from universal_transformer.nn.trace import Trace


def depth_loop(
    recurrence: Recurrence, states: States, context: AttentionContext, *, depth: Depth, padding: Padding | None
) -> tuple[States, Trace]:
    """As :meth:`Recurrence.halting_loop`. The trace has steps and remainders, no probabilities and no weights."""
    signals = recurrence.coordinates.step_signals(depth.max_steps, like=states)
    context = _without_views(context)

    def runs(step: Tensor, states: Tensor, output: Tensor, *halting: Tensor) -> Tensor:
        del states, output
        return (step < depth.max_steps) & Halting(*halting).running.any()

    def body(step: Tensor, states: Tensor, output: Tensor, *halting: Tensor) -> tuple[Tensor, ...]:
        signal = None if signals is None else signals.index_select(0, step.unsqueeze(0))
        new, made, after = _one_step(
            recurrence,
            context,
            (states, output, Halting(*halting)),
            step=step,
            depth=depth,
            padding=padding,
            signal=signal,
        )
        return step + 1, *(part.clone() for part in (new, made, *after))

    start = (states, torch.zeros_like(states), *Halting.start(states, padding=padding))
    first = torch.zeros((), dtype=torch.int64, device=states.device)
    given = (first, *(part.clone() for part in start))
    _, _, output, *halting = while_loop(runs, body, given)  # type: ignore[no-untyped-call]
    found = Halting(*halting)
    return output.to(states.dtype), Trace(found.steps, found.remainder, padding)


def _one_step(
    recurrence: Recurrence,
    context: AttentionContext,
    before: tuple[States, States, Halting],
    *,
    step: Tensor,
    depth: Depth,
    padding: Padding | None,
    signal: Float[Tensor, "1 channels"] | None,
) -> tuple[States, States, Halting]:
    """States, output and halting after ``step``, a tensor; ``signal``: τ of this step. All steps share their blocks."""
    states, output, halting = before
    unit, active = recurrence.unit, halting.running
    rule, last = unit.config.output, step == depth.max_steps - 1
    timed = recurrence.coordinates(states, context.encoding, step=0, num_steps=1, signals=signal)
    probability = torch.where(step < depth.min_steps - 1, 0.0, unit(timed, padding=padding))
    stop = last.expand_as(active) if unit.config.remainder_at_cap else False
    decision = unit.rule(halting.cumulative, probability, threshold=depth.threshold, stop=stop)
    halting, weight = halting.advance(decision)
    new = recurrence.step(timed, context, step=0)
    made = combine(output, weigh(new, weight, rule=rule), weight, rule=rule)
    if rule == "final":
        made = torch.where(active.unsqueeze(-1), made, output)
    if unit.config.state == "frozen":
        new = torch.where(active.unsqueeze(-1), new, states)
    return new, made, halting


def _without_views(context: AttentionContext) -> AttentionContext:
    """Keys and values of the source in memory of their own: ``while_loop`` refuses tensors that share it."""
    if context.source is None:
        return context
    source = [ProjectedSource(each.key.clone(), each.value.clone(), each.mask) for each in context.source]
    return replace(context, source=source)
