"""What a recurrence reports."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from universal_transformer.axes import Float, Int, Padding, PerPosition, PerStep, Scalar, Tensor
from universal_transformer.nn.context import Context
from universal_transformer.nn.halting import Progress, mean_over_positions


def stacked(values: Iterable[Tensor | None]) -> Tensor | None:
    """One row for each value that there is; None where there is none."""
    rows = [value for value in values if value is not None]
    return torch.stack(rows) if rows else None


@dataclass(frozen=True)
class Trace:
    """What happened over depth: read by the ponder cost, the plots and the explorer alike.

    ``steps`` is N and ``remainder`` R, both 0 at padding; of a fixed depth N is T and R is 0. ``ponder_cost``: mean
    N + R over real positions, or the cost of another rule; 0 for a fixed depth. ``probability`` and ``weight`` (of
    rules that decide) have one row a step made. Kept on request: ``self_attention`` and ``cross_attention``, one row a
    layer application, and ``states``, ``H^t`` after each step made, after the closing norm where there is one.
    """

    steps: PerPosition
    remainder: PerPosition
    padding: Padding | None
    ponder_cost: Scalar
    probability: PerStep | None = None
    weight: PerStep | None = None
    self_attention: Float[Tensor, "layer batch heads query key"] | None = None
    cross_attention: Float[Tensor, "layer batch heads query source"] | None = None
    states: Float[Tensor, "step batch position width"] | None = None

    @classmethod
    def of(cls, last: Progress, context: Context, *, close: Callable[[Tensor], Tensor]) -> "Trace":
        """The trace of a loop that ended with ``last``; ``close``: the closing norm."""
        record, padding = context.record, context.idle
        states = stacked(made.states for made in last.history)
        return cls(
            last.steps,
            last.remainder,
            padding,
            context.depth.rule.cost(last, padding=padding, min_steps=context.depth.min_steps),
            stacked(made.probability for made in last.history),
            stacked(made.weight for made in last.history),
            None if record is None else stacked(record.self_attention),
            None if record is None else stacked(record.cross_attention),
            None if states is None else close(states),
        )

    def num_positions(self) -> Int[Tensor, ""]:
        """Number of real positions."""
        return torch.ones_like(self.steps, dtype=torch.long).sum() if self.padding is None else (~self.padding).sum()

    def mean_steps(self) -> Scalar:
        """Mean N over real positions."""
        return mean_over_positions(self.steps, padding=self.padding)
