"""Dynamic halting: each position decides for itself when to stop (adaptive computation time).

With ``p = sigmoid(w · x + b)`` from the timed state and ``h`` the sum of the earlier ``p`` (Graves 2016, section 2;
Universal Transformer, section 2.2): a running position *goes on* while ``h + p <= threshold`` with weight ``p``, and
*halts now* otherwise with weight ``R = 1 - h``, its remainder. Both count one more update in ``N``.
"""

from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

from universal_transformer.axes import (
    Bool,
    Float,
    Index,
    Padding,
    PerPosition,
    PerRow,
    Rows,
    Scalar,
    States,
    Tensor,
)
from universal_transformer.errors import UserError

Output = Literal["mean", "interpolate", "final"]


def wide(dtype: torch.dtype) -> torch.dtype:
    """What probabilities are counted in: sums of them meet a threshold, too fine a line for 16 bits."""
    return torch.promote_types(dtype, torch.float32)


class Halting(NamedTuple):
    """Where every position stands; padding starts halted."""

    cumulative: PerPosition  # h
    remainder: PerPosition  # R
    steps: PerPosition  # N
    running: Padding

    @classmethod
    def start(cls, states: States, *, padding: Padding | None) -> "Halting":
        """``h = R = N = 0``; everything but padding runs."""
        zero = torch.zeros(states.shape[:2], dtype=wide(states.dtype), device=states.device)
        running = torch.ones_like(zero, dtype=torch.bool) if padding is None else ~padding
        return cls(zero, zero, zero, running)


def check_threshold(threshold: float) -> float:
    """UserError unless ``0 < threshold <= 1``."""
    if not 0.0 < threshold <= 1.0:
        raise UserError(
            f"halting_threshold={threshold}: a cumulative probability to stop at lies in (0, 1], usually 0.99"
        )
    return threshold


def advance(
    halting: Halting, probability: PerPosition, *, threshold: float, stop: bool | Padding
) -> tuple[Halting, PerPosition]:
    """One halting decision: the new state and the weight of the step about to be made.

    ``stop`` makes running positions (all, or those it marks) halt now and take their remainders (the cap, decision
    D7). Gradient flows through ``R`` and the weights, never through ``N`` or the decisions.
    """
    h, running = halting.cumulative, halting.running
    over = (h + probability > threshold) | stop
    halts, goes_on = running & over, running & ~over
    rest = 1.0 - h
    weight = torch.where(halts, rest, torch.where(goes_on, probability, 0.0))
    cumulative = torch.where(halts, 1.0, torch.where(goes_on, h + probability, h))
    unspent = cumulative < 1.0  # a threshold of 1 can be met exactly, and then no weight is left to give
    return (
        Halting(
            cumulative=cumulative,
            remainder=torch.where(halts, rest, halting.remainder),
            steps=halting.steps + running,
            running=goes_on & unspent,
        ),
        weight,
    )


def decide(
    h: PerRow, probability: PerRow, *, threshold: float, stop: bool | Bool[Tensor, "row"]
) -> tuple[PerRow, PerRow, Bool[Tensor, "row"]]:
    """:func:`advance` where all rows run: ``h``, the weights, and who halts."""
    left = 1.0 - h
    if stop is True:
        return torch.ones_like(h), left, torch.ones_like(h, dtype=torch.bool)
    total = h + probability
    over = total > threshold
    if isinstance(stop, Tensor):
        over |= stop
    return total.masked_fill(over, 1.0), torch.where(over, left, probability), over


def contribution(new: States, weight: PerPosition, *, rule: Output) -> States:
    """What a step's state adds to the output: ``w x``, or ``x`` itself of the rule ``final``."""
    return new if rule == "final" else weight.unsqueeze(-1) * new


def combine(output: States, made: States, weight: PerPosition, *, active: Padding, rule: Output) -> States:
    """Fold one step's :func:`contribution` into the output (decision D8).

    ``mean``: ``S + w x`` (Graves). ``interpolate``: ``w x + (1 - w) S`` (the paper's listing). ``final``: the state of
    the last step a position made; ``active`` are the positions that make this one.
    """
    if rule == "final":
        return torch.where(active.unsqueeze(-1), made, output)
    return output + made if rule == "mean" else made + (1.0 - weight.unsqueeze(-1)) * output


def fold(
    output: Float[Tensor, "position width"],
    index: Index,
    new: Rows,
    weight: PerRow,
    *,
    rule: Output,
) -> None:
    """:func:`combine` at the rows ``index``, in place."""
    if rule == "final":
        output.index_copy_(0, index, new.to(output.dtype))
        return
    share = weight.unsqueeze(1)
    made = (share * new).to(output.dtype)
    if rule == "mean":
        output.index_add_(0, index, made)
        return
    output.index_copy_(0, index, made + ((1.0 - share) * output.index_select(0, index)).to(output.dtype))


def ponder_cost(steps: PerPosition, remainder: PerPosition, *, padding: Padding | None) -> Scalar:
    """Mean over real positions of ``N + R`` (Graves 2016, equation 11)."""
    total = steps + remainder
    if padding is None:
        return total.mean()
    return total.masked_fill(padding, 0.0).sum() / (~padding).sum().clamp(min=1)


class HaltingUnit(nn.Module):
    """``p = sigmoid(w · x + b)``, at least in float32; ``scope="sequence"`` averages ``p`` over the real positions."""

    def __init__(
        self, width: int, *, bias: float, scope: Literal["position", "sequence"] = "position"
    ) -> None:
        super().__init__()
        self.scope, self.initial_bias = scope, bias
        self.weight = nn.Parameter(torch.zeros(1, width))
        self.bias = nn.Parameter(torch.full((1,), bias))

    def each(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """``p`` of every position by itself."""
        if not torch.is_autocast_enabled(states.device.type):
            return self._each(states)
        with torch.autocast(states.device.type, enabled=False):
            return self._each(states)

    def _each(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        dtype = wide(states.dtype)
        logit = linear(states.to(dtype), self.weight.to(dtype), self.bias.to(dtype))
        return torch.sigmoid(logit.squeeze(-1))

    def forward(self, states: States, *, padding: Padding | None = None) -> Float[Tensor, "batch position"]:
        probability = self.each(states)
        if self.scope == "position":
            return probability
        if padding is None:
            return probability.mean(dim=1, keepdim=True).expand_as(probability)
        real = ~padding
        total = (probability * real).sum(dim=1, keepdim=True)
        return (total / real.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(probability)
