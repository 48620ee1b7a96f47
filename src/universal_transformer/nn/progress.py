"""How deep a call of a recurrence goes, and what its halting loop carries from step to step."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from universal_transformer.axes import Bool, Float, Int, Padding, PerPosition, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.config import MOST_STEPS
from universal_transformer.nn.exits import ExitUnit
from universal_transformer.nn.halting import Decision, Halting, StopUnit, UnitState
from universal_transformer.nn.trace import Trace


class Depth(NamedTuple):
    """How deep a call goes: at most ``max_steps``, and no position halts before ``min_steps``.

    ``threshold``: the cumulative probability at which a position halts. ``exit`` stops positions in place of the
    halting unit, if there is one. ``by_length``: a sequence of n real positions makes at most n steps, and without a
    halting unit exactly n (decision D15).
    """

    max_steps: int
    min_steps: int = 1
    threshold: float = 0.99
    exit: ExitUnit | None = None
    by_length: bool = False

    def of_lengths(self, *, positions: int, padding: Padding | None) -> tuple["Depth", Int[Tensor, "batch"] | None]:
        """The depth of a call whose sequences make as many steps as they have positions, and these numbers.

        They are None where all are equal.
        """
        if positions > self.max_steps:
            raise UserError(f'max_steps="length": a sequence of {positions:,} positions; at most {MOST_STEPS:,} steps')
        most = max(1, positions)
        depth = self._replace(max_steps=most, min_steps=min(self.min_steps, most), by_length=padding is not None)
        return depth, None if padding is None else (~padding).sum(dim=1)


def decide(
    unit: StopUnit,
    cumulative: Float[Tensor, "*rows"],
    probability: Float[Tensor, "*rows"],
    *,
    depth: Depth,
    step: int | Int[Tensor, "*rows"],
    is_last: bool | Bool[Tensor, "*rows"],
) -> tuple[Float[Tensor, "*rows"], Decision]:
    """The probability that counts at ``step`` (from 0), which is 0 before ``min_steps``, and what follows from it.

    ``is_last``: rows that make no further step in any case, and halt with their remainder (decision D7).
    """
    if depth.min_steps > 1:
        probability = probability * (step >= depth.min_steps - 1)
    stop = is_last if unit.config.remainder_at_cap else False
    return probability, unit.rule(cumulative, probability, threshold=depth.threshold, stop=stop)


@dataclass
class HaltingProgress:
    """What the halting loop carries from step to step. ``probabilities`` and ``weights`` have one entry a step made.

    ``unit_state`` is what the halting unit keeps. ``entered``: what entered the second and each later block of a step,
    at the last step of each position (decision D14); nothing where halted positions go on changing. ``shown``: the
    states that others attend to, of a rule that shows another state than the last one.
    """

    states: States
    output: States
    halting: Halting
    entered: tuple[States, ...] = ()
    unit_state: UnitState = ()
    shown: States | None = None
    probabilities: list[PerPosition] = field(default_factory=list)
    weights: list[PerPosition] = field(default_factory=list)

    @classmethod
    def start(cls, states: States, *, unit: StopUnit, blocks: int, padding: Padding | None) -> "HaltingProgress":
        """Before the first step, of ``blocks`` blocks, where everything but ``padding`` runs."""
        zero = torch.zeros_like(states)
        later = blocks - 1 if unit.config.state == "frozen" else 0
        shown = states if unit.config.attends_to_expected_state else None
        return cls(states, zero, Halting.start(states, padding=padding), entered=(zero,) * later, shown=shown)

    def trace(self, padding: Padding | None, *, unit: StopUnit, depth: Depth) -> Trace:
        """What happened over depth."""
        probabilities, weights = torch.stack(self.probabilities), torch.stack(self.weights)
        cost = unit.cost(weights, self.unit_state, min_steps=depth.min_steps)
        return Trace(self.halting.steps, self.halting.remainder, padding, probabilities, weights, cost=cost)
