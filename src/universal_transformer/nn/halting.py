"""Dynamic halting: each position decides by itself when to stop (adaptive computation time).

With ``p = sigmoid(w · x + b)`` from the timed state and ``h`` the sum of the earlier ``p`` (Graves 2016, section 2;
Universal Transformer, section 2.2): a running position *goes on* while ``h + p <= threshold`` with weight ``p``, and
*halts now* otherwise with weight ``R = 1 - h``, its remainder. Both count one more step in ``N``.

A rule (:func:`act`) and :func:`combine` are pure functions of tensors of any shape whose entries all run, and a unit
takes rows of states of any shape. So the loop over all positions and an execution that computes only the running ones
share them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.functional import linear

from universal_transformer.axes import Bool, Float, Padding, PerPosition, PerStep, Scalar, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.config import HaltingConfig

OutputRule = Literal["mean", "interpolate", "final"]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which probabilities are summed: 16 bits are too coarse for a comparison with a threshold."""
    return torch.promote_types(dtype, torch.float32)


class Decision(NamedTuple):
    """What a halting rule decides before a step."""

    cumulative: Float[Tensor, "*rows"]  # h after this step; no further step is made where it is 1, so 1 where it halts
    weight: Float[Tensor, "*rows"]  # of the state that this step computes
    halts: Bool[Tensor, "*rows"]  # whether this step is the last one


Rule = Callable[..., Decision]
"""``rule(cumulative, probability, *, threshold, stop)``, as :func:`act`."""


UnitState = tuple[Tensor, ...]
"""What a unit keeps of each row from one step to the next, ``[*rows, …]``; empty before the first step. Of a row that
starts later it is 0."""


@runtime_checkable
class Sequences(Protocol):
    """Which rows form a sequence."""

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the rows of each sequence, for every row."""

    def apply(self, function: Callable[[States], Tensor], states: Tensor) -> Tensor:
        """``function`` of the states of each sequence ``[batch, position, width]``, for every row."""


@runtime_checkable
class StopUnit(Protocol):
    """Computes halting probabilities after (or before) each step. It alone decides which positions stop.

    ``reads``: the timed state before the block, or the new state after it (after the closing norm, if there is one).
    """

    @property
    def reads(self) -> Literal["timed", "new"]:
        """The states from which it computes ``p``."""

    @property
    def rule(self) -> Rule:
        """What follows from its probabilities."""

    @property
    def config(self) -> HaltingConfig:
        """Decisions D7 to D10."""

    def halting_probability(
        self, states: Tensor, unit_state: UnitState, *, sequences: Sequences
    ) -> tuple[Tensor, UnitState]:
        """``p`` of each row, and the state of the unit for the next step."""

    def cost(self, weights: PerStep, unit_state: UnitState, *, min_steps: int) -> Scalar | None:
        """What the loss adds for the steps taken; None: ``N + R`` (:func:`ponder_cost`)."""


@dataclass(frozen=True)
class PaddedSequences:
    """Rows that are the positions of a padded batch."""

    padding: Padding | None

    def mean(self, values: PerPosition) -> PerPosition:
        """The mean over the real positions of each sequence, for every position."""
        if self.padding is None:
            return values.mean(dim=1, keepdim=True).expand_as(values)
        real = ~self.padding
        total = (values * real).sum(dim=1, keepdim=True)
        return (total / real.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(values)

    def apply(self, function: Callable[[States], Tensor], states: States) -> Float[Tensor, "batch position classes"]:
        """``function`` of the states of each sequence, for every position."""
        return function(states).unsqueeze(1).expand(-1, states.shape[1], -1)


def act(
    cumulative: Float[Tensor, "*rows"],
    probability: Float[Tensor, "*rows"],
    *,
    threshold: float,
    stop: bool | Bool[Tensor, "*rows"],
) -> Decision:
    """Adaptive computation time: halt when ``h + p > threshold``, with weight ``1 - h``; else go on, with weight ``p``.
    A sum of 1 leaves no weight for a further step: it halts at a threshold of 1 too.

    ``stop``: entries that halt now in any case (the last step, decision D7). Gradient flows through the weights, not
    through the decision (Graves 2016, section 2).
    """
    total = cumulative + probability
    halts = total > min(threshold, 1.0 - torch.finfo(total.dtype).eps / 2)
    if stop is not False:
        halts = halts | stop
    return Decision(total.masked_fill(halts, 1.0), torch.where(halts, 1.0 - cumulative, probability), halts)


def ponder(
    cumulative: Float[Tensor, "*rows"],
    probability: Float[Tensor, "*rows"],
    *,
    threshold: float,
    stop: bool | Bool[Tensor, "*rows"],
) -> Decision:
    """PonderNet: ``p`` is the probability that this step is the last one if no earlier one was (Banino et al. 2021).

    With ``h = 1 - Π_j (1 - p_j)`` a position halts when ``h > threshold``. Its weight is ``p (1 - h)``, or ``1 - h`` at
    the last step.
    """
    weight = probability * (1.0 - cumulative)
    total = (cumulative + weight).clamp(max=1.0 - torch.finfo(cumulative.dtype).eps)  # 1 is for those that halt
    halts = total > threshold
    if stop is not False:
        halts = halts | stop
    return Decision(total.masked_fill(halts, 1.0), torch.where(halts, 1.0 - cumulative, weight), halts)


def output_term(new: Float[Tensor, "*rows width"], weight: Float[Tensor, "*rows"], *, rule: OutputRule) -> Tensor:
    """The term that a step's state adds to the output: ``w x``, or ``x`` itself of the rule ``final``."""
    return new if rule == "final" else weight.unsqueeze(-1) * new


def combine(
    output: Float[Tensor, "*rows width"],
    term: Float[Tensor, "*rows width"],
    weight: Float[Tensor, "*rows"],
    *,
    rule: OutputRule,
) -> Float[Tensor, "*rows width"]:
    """The output ``S`` after a step whose term is :func:`output_term` (decision D8).

    ``mean``: ``S + w x`` (Graves). ``interpolate``: ``w x + (1 - w) S`` (the paper's listing). ``final``: ``x``.
    """
    if rule == "final":
        return term
    return output + term if rule == "mean" else term + (1.0 - weight.unsqueeze(-1)) * output


class Halting(NamedTuple):
    """The halting state of every position; padding starts halted."""

    cumulative: PerPosition  # h
    remainder: PerPosition  # R
    steps: PerPosition  # N
    running: Padding

    @classmethod
    def start(cls, states: States, *, padding: Padding | None) -> "Halting":
        """``h = R = N = 0``; everything but padding runs."""
        zero = torch.zeros(states.shape[:2], dtype=accumulation_dtype(states.dtype), device=states.device)
        running = torch.ones_like(zero, dtype=torch.bool) if padding is None else ~padding
        return cls(zero, zero, zero, running)

    def advance(self, decision: Decision) -> tuple["Halting", PerPosition]:
        """The state after a decision for all positions, and the weights: 0 where a position does not run."""
        h, running = decision.cumulative, self.running
        halts = running & decision.halts
        return (
            Halting(
                cumulative=torch.where(running, h, self.cumulative),
                remainder=torch.where(halts, decision.weight, self.remainder),
                steps=self.steps + running,
                running=running & (h < 1.0),
            ),
            torch.where(running, decision.weight, 0.0),
        )


def check_threshold(threshold: Any) -> float:
    """UserError unless ``0 < threshold <= 1``."""
    if not isinstance(threshold, int | float) or not 0.0 < threshold <= 1.0:
        raise UserError(
            f"halting_threshold={threshold!r}: a cumulative probability to stop at is a number in (0, 1], usually 0.99"
        )
    return threshold


def ponder_cost(steps: PerPosition, remainder: PerPosition, *, padding: Padding | None) -> Scalar:
    """Mean over real positions of ``N + R`` (Graves 2016, equation 11)."""
    total = steps + remainder
    if padding is None:
        return total.mean()
    return total.masked_fill(padding, 0.0).sum() / (~padding).sum().clamp(min=1)


class HaltingUnit(nn.Module):
    """``p = sigmoid(w · x + b)``, at least in float32; ``scope="sequence"`` averages ``p`` over the real positions."""

    reads: Literal["timed", "new"] = "timed"
    rule: Rule = staticmethod(act)

    def __init__(self, width: int, config: HaltingConfig, *, max_steps: int = 1) -> None:
        super().__init__()
        self.config, self.max_steps = config, max_steps
        self.weight = nn.Parameter(torch.zeros(1, width))
        self.bias = nn.Parameter(torch.full((1,), self.first_bias))

    @property
    def first_bias(self) -> float:
        """The initial bias: that of the configuration, or ``-ln(2T - 1)``, with which ``p = 1 / (2T)`` (decision D11).

        With it ``w`` starts at 0, and a position takes all T steps at first, at any T.
        """
        return -math.log(2 * self.max_steps - 1) if self.config.bias is None else float(self.config.bias)

    @torch.no_grad()
    def initialise(self) -> None:
        """Set the weights that training starts with: ``w = 0`` with the default bias, which alone decides at first."""
        nn.init.xavier_uniform_(self.weight)  # drawn in any case: a seed gives all other weights the same values
        if self.config.bias is None:
            nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, self.first_bias)

    def features(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """What the affine map reads: the states."""
        return states

    def cost(self, weights: PerStep, unit_state: UnitState, *, min_steps: int) -> Scalar | None:  # noqa: ARG002
        """What the loss adds for the steps taken; None: ``N + R`` (:func:`ponder_cost`)."""
        return None

    def logit(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """``w · x + b`` of every position by itself."""
        if not torch.is_autocast_enabled(states.device.type):
            return self._logit(states)
        with torch.autocast(states.device.type, enabled=False):
            return self._logit(states)

    def _logit(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        dtype = accumulation_dtype(states.dtype)
        return linear(self.features(states).to(dtype), self.weight.to(dtype), self.bias.to(dtype)).squeeze(-1)

    def probability(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """``p`` of every position by itself."""
        return torch.sigmoid(self.logit(states))

    def forward(self, states: States, *, padding: Padding | None = None) -> Float[Tensor, "batch position"]:
        """``p``, the same for all positions of a sequence where the scope is the sequence."""
        return self.halting_probability(states, (), sequences=PaddedSequences(padding))[0]

    def halting_probability(
        self, states: Float[Tensor, "*rows width"], unit_state: UnitState, *, sequences: Sequences
    ) -> tuple[Float[Tensor, "*rows"], UnitState]:
        """``p`` of each row, the same for all rows of a sequence where the scope is the sequence."""
        probability = self.probability(states)
        return probability if self.config.scope == "position" else sequences.mean(probability), unit_state


@dataclass(frozen=True)
class LengthUnit:
    """Stops no position by itself: a sequence of n positions makes n steps (paper, section 4; decision D15)."""

    reads: ClassVar[Literal["timed"]] = "timed"
    rule: ClassVar[Rule] = staticmethod(act)
    config: ClassVar[HaltingConfig] = HaltingConfig(output="final")

    def halting_probability(
        self, states: Float[Tensor, "*rows width"], unit_state: UnitState, *, sequences: Sequences
    ) -> tuple[Float[Tensor, "*rows"], UnitState]:
        """``p = 0``."""
        del sequences
        return states.new_zeros(states.shape[:-1], dtype=accumulation_dtype(states.dtype)), unit_state

    def cost(self, weights: PerStep, unit_state: UnitState, *, min_steps: int) -> Scalar | None:  # noqa: ARG002
        """Nothing is trained to stop."""
        return None
