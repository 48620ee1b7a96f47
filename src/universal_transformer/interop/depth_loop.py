"""The loop over depth as one operation of an exported graph, which ends when the last position has halted.

Only exported models use it: called eagerly, ``torch.while_loop`` does not serve every length, and its gradients can be
wrong.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from universal_transformer.axes import States, Tensor
from universal_transformer.nn.context import Context, ProjectedSource
from universal_transformer.nn.halting import Progress, accumulation_dtype
from universal_transformer.nn.recurrence import Recurrence, depth_loop
from universal_transformer.torch_private import while_loop

CARRIED = ("running", "states", "output", "steps", "halted", "remainder", "shown")
"""The tensors of a progress that the next step needs, where they are not None."""


def graph_loop(recurrence: Recurrence, states: States, context: Context) -> Progress:
    """As :func:`~universal_transformer.nn.recurrence.depth_loop`, whose steps are nodes of a graph where no position
    halts. The progress has no history.
    """
    rule = context.depth.rule
    if not rule.stops:
        return depth_loop(recurrence, states, context)
    if context.source is not None:  # while_loop refuses tensors that share their memory
        source = [ProjectedSource(each.key.clone(), each.value.clone(), each.mask) for each in context.source]
        context = replace(context, source=source)

    def runs(step: Tensor, *carried: Tensor) -> Tensor:
        return (step < context.depth.max_steps) & carried[0].any()

    def body(step: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        return step + 1, *_carried(recurrence.advance(_progress(carried, like=was), context, step=step))

    was, number = rule.start(states, context.idle, blocks=recurrence.blocks_per_step), 0
    assert was.output is not None
    was = was._replace(output=was.output.to(accumulation_dtype(states.dtype)))
    first = recurrence.advance(was, context, step=0)
    if first.memory:  # of which the start has none
        was, number = first, 1
    step = torch.full((), number, dtype=torch.int64, device=states.device)
    _, *carried = while_loop(runs, body, (step, *_carried(was)))
    return _progress(carried, like=was)


def _carried(progress: Progress) -> tuple[Tensor, ...]:
    """``progress`` as tensors, each in memory of its own."""
    parts = (*(getattr(progress, name) for name in CARRIED), *progress.inputs, *progress.memory)
    return tuple(part.clone() for part in parts if part is not None)


def _progress(carried: Sequence[Tensor], *, like: Progress) -> Progress:
    """The inverse of :func:`_carried`."""
    names = [name for name in CARRIED if getattr(like, name) is not None]
    others, count = tuple(carried[len(names) :]), len(like.inputs)
    fields: dict[str, Any] = dict(zip(names, carried, strict=False))
    return like._replace(**fields, inputs=others[:count], memory=others[count:])
