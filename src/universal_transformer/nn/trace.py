"""What a recurrence reports."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from universal_transformer.axes import Float, Int, Padding, PerPosition, PerStep, Scalar, Tensor
from universal_transformer.nn.halting import ponder_cost as mean_ponder


class Kept(NamedTuple):
    """What a trace keeps on request, because it takes much memory."""

    attention: bool = False
    states: bool = False


NOTHING = Kept()
"""By default nothing is kept."""


@dataclass(frozen=True)
class Trace:
    """What happened over depth: read by the ponder cost, the plots and the explorer alike.

    ``cost`` is the ponder cost of rules that define another one than ``N + R``.

    ``steps`` is N and ``remainder`` R, both 0 at padding; of a fixed depth N is T and R is 0. ``probability`` and
    ``weight`` (halting only) have one row a step made. ``self_attention`` and ``cross_attention`` have one row a
    layer application and are kept on request; so are ``states``: ``H^t`` after each step made, after the closing norm
    where there is one.
    """

    steps: PerPosition
    remainder: PerPosition
    padding: Padding | None
    probability: PerStep | None = None
    weight: PerStep | None = None
    self_attention: Float[Tensor, "layer batch heads query key"] | None = None
    cross_attention: Float[Tensor, "layer batch heads query source"] | None = None
    states: Float[Tensor, "step batch position width"] | None = None
    cost: Scalar | None = None

    def num_positions(self) -> Int[Tensor, ""]:
        """Number of real positions."""
        return torch.ones_like(self.steps, dtype=torch.long).sum() if self.padding is None else (~self.padding).sum()

    def mean_steps(self) -> Scalar:
        """Mean N over real positions."""
        return mean_ponder(self.steps, torch.zeros_like(self.steps), padding=self.padding)

    def ponder_cost(self) -> Scalar:
        """Mean N + R over real positions, or ``cost``; 0 for a fixed depth, where there is nothing to decide."""
        if self.cost is not None:
            return self.cost
        if self.probability is None:
            return self.steps.new_zeros(())
        return mean_ponder(self.steps, self.remainder, padding=self.padding)
