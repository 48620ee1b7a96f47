"""Dynamic halting: when a position stops, and what its output is (paper, section 2.2; Graves 2016).

A :class:`Rule` says after each step which positions make another one. The loop over depth (`nn/recurrence.py`) knows
nothing else of it.

=============== ===================================================================== =================================
rule            a position makes a further step while                                 output
=============== ===================================================================== =================================
`FixedDepth`    ``t < T``                                                             ``H^T``
`ACT`           ``h + p <= threshold``, h: the sum of its earlier p                   ``Σ_t w_t H^t``
=============== ===================================================================== =================================

All tensors of a rule have the axes of the positions, ``[batch, position]``, or one axis ``[row]`` where an execution
keeps only the positions that run. The same code serves both.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

from universal_transformer.axes import Bool, Padding, PerPosition, Scalar, Tensor, Values, Vectors
from universal_transformer.nn.context import Context, Number
from universal_transformer.nn.step_config import HaltingConfig


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which probabilities are summed: 16 bits are too coarse for a comparison with a threshold."""
    return torch.promote_types(dtype, torch.float32)


class Made(NamedTuple):
    """What a trace reads of a step; ``states``, those that others see, on request."""

    probability: Values | None
    weight: Values | None
    states: Vectors | None = None


class Progress(NamedTuple):
    """What each position has after a step. A tuple is copied with changes in a quarter of the time of a dataclass.

    ``running``: whether it makes a further step; None: all do. ``inputs``: what entered the second and each later
    block of a step, at the last step of each position (decision D14). ``memory``: what the rule keeps of each position
    from step to step; of a row that starts later it is 0. ``frozen``: a position that has halted keeps what it has
    (decision D9). ``history``: the steps made, in the last progress of a loop.
    """

    states: Vectors  # H^t
    output: Vectors | None  # S
    running: Bool[Tensor, "*rows"] | None
    steps: Values  # N
    halted: Values  # h, the probability with which it has stopped by now; 1 where it halts
    remainder: Values  # R
    probability: Values | None = None  # p of this step, 0 where the position did not run
    weight: Values | None = None  # of this step's state in the output
    inputs: tuple[Vectors, ...] = ()
    memory: tuple[Tensor, ...] = ()
    frozen: bool = True
    history: tuple[Made, ...] = ()
    shown: Vectors | None = None  # what other positions see, where it is not the state

    @property
    def seen(self) -> Vectors:
        """The states of which other positions see keys and values."""
        return self.states if self.shown is None else self.shown

    def carried(self) -> "Progress":
        """What a step needs: not the output, which a checkpointed step would hold until the backward pass."""
        return self._replace(output=None, probability=None, weight=None)

    def keep(self, new: Tensor, old: Tensor) -> Tensor:
        """``new`` where a position runs, else ``old``."""
        if self.running is None or not self.frozen:
            return new
        return torch.where(self.running.view(*self.running.shape, *[1] * (new.dim() - self.running.dim())), new, old)


class Step(NamedTuple):
    """A step as a rule reads it: the states that entered it, with their coordinates, and those that it computed.

    ``close``: the closing norm, which gives states as the output reads them.
    """

    timed: Vectors
    new: Vectors
    number: Number
    context: Context
    close: Callable[[Vectors], Vectors]


class Rule(nn.Module):
    """The protocol of halting rules: :meth:`start`, :meth:`update`, :meth:`combine` and :meth:`cost`.

    A rule is registered in ``HALTING_RULES`` (`rules/__init__.py`) and is built as ``rule(width, config, max_steps)``.
    """

    frozen: bool = True
    """Others attend to the last state of a position that has halted (decision D9)."""
    stops: bool = True
    """Whether a position may stop before the last step."""
    decides: bool = True
    """Whether the rule computes probabilities."""
    scope: str = "position"
    """D10: each position halts by itself, or all positions of a sequence halt together."""
    first_step: int = 1
    """The first step that can be the last one of a position."""

    @property
    def obstacle(self) -> str | None:
        """Why leaving out halted positions would change a number; None if it would not."""
        return None if self.frozen else 'halted positions go on changing (state="evolving")'

    def start(self, states: Vectors, padding: Padding | None, *, blocks: int = 1) -> Progress:
        """Before the first step, of ``blocks`` blocks: everything but ``padding`` runs."""
        kind = accumulation_dtype(states.dtype)
        zero = torch.zeros(states.shape[:-1], dtype=kind, device=states.device)
        running = torch.ones_like(zero, dtype=torch.bool) if padding is None else ~padding
        blank = torch.zeros_like(states)
        inputs = (blank,) * (blocks - 1) if self.frozen and self.stops else ()
        return Progress(states, blank, running, zero, zero, zero, inputs=inputs, frozen=self.frozen)

    def update(self, was: Progress, step: Step) -> Progress:
        """What follows ``was`` after a step, but for the output.

        Padding and positions that have halted are computed as well, and change nothing.
        """
        raise NotImplementedError

    def combine(self, was: Progress, now: Progress) -> Progress:
        """``now``, which follows ``was``, with its output S."""
        raise NotImplementedError

    def cost(self, last: Progress, *, padding: Padding | None, min_steps: int) -> Scalar:
        """What the loss adds for the steps taken, from the last progress of a loop."""
        return last.steps.new_zeros(())


class FixedDepth(Rule):
    """All positions make T steps."""

    frozen = stops = decides = False

    def update(self, was: Progress, step: Step) -> Progress:
        steps = was.steps  # counted at the end, so that no step has a tensor of its own
        if (last := step.context.is_last(step.number)) is not False:
            steps = steps + step.context.depth.max_steps * (last * (1 if was.running is None else was.running))
        return was._replace(states=step.new, steps=steps)

    def combine(self, was: Progress, now: Progress) -> Progress:
        return now._replace(output=now.states)


def mean_over_positions(values: PerPosition, *, padding: Padding | None) -> Scalar:
    """The mean over real positions."""
    if padding is None:
        return values.mean()
    return values.masked_fill(padding, 0.0).sum() / (~padding).sum().clamp(min=1)


class Accumulating(Rule):
    """Rules that add up probabilities: a position halts when their sum exceeds the threshold, or at the last step.

    With ``h`` the sum so far and ``p`` from :meth:`probability`, :meth:`decide` gives ``h`` after the step and the
    weight of its state. A position that halts takes the rest, ``1 - h``: its remainder R. A sum of 1 leaves no weight
    for a further step: it halts at a threshold of 1 too. Gradient flows through the weights, not through the decision
    (Graves 2016, section 2).
    """

    output_rule: str = "mean"
    """Decision D8: ``mean`` ``S + w x`` (Graves), ``interpolate`` ``w x + (1 - w) S`` (the paper's listing), ``final``
    ``x``."""
    halts_at_cap: bool = True
    """D7: a position that still runs at the last step halts there, and takes its remainder."""

    def probability(self, was: Progress, step: Step) -> tuple[Values, tuple[Tensor, ...]]:
        """The p of each position, and what the rule keeps for the next step."""
        raise NotImplementedError

    def decide(self, halted: Values, p: Values) -> tuple[Values, Values]:
        """The h after this step where a position goes on, and the weight of the step."""
        return halted + p, p

    def limit(self, threshold: float | Scalar) -> float | Scalar:
        """The sum above which a position halts."""
        return threshold

    def update(self, was: Progress, step: Step) -> Progress:
        p, memory = self.probability(was, step)
        depth, last = step.context.depth, step.context.is_last(step.number)
        if depth.min_steps > 1:
            p = p * (step.number >= depth.min_steps - 1)
        total, weight = self.decide(was.halted, p)
        limit = self.limit(depth.threshold)
        if not isinstance(limit, Tensor):  # which an exported graph reads, and keeps below 1
            limit = min(limit, 1.0 - torch.finfo(total.dtype).eps / 2)
        halts = total > limit
        if self.halts_at_cap and last is not False:
            halts = halts | last
        weight = torch.where(halts, 1.0 - was.halted, weight)
        if was.running is not None:
            running, halts, steps = was.running & ~halts, was.running & halts, was.steps + was.running
            total = torch.where(was.running, total, was.halted)
            p, weight = (torch.where(was.running, values, 0.0) for values in (p, weight))
        else:
            running, steps = ~halts, was.steps + 1
        return was._replace(
            states=was.keep(step.new, was.states),
            running=running,
            steps=steps,
            halted=total.masked_fill(halts, 1.0),
            remainder=torch.where(halts, weight, was.remainder),
            probability=p,
            weight=weight,
            memory=memory,
        )

    def combine(self, was: Progress, now: Progress) -> Progress:
        assert was.output is not None
        assert now.weight is not None
        weight, output = now.weight.unsqueeze(-1), now.states
        if self.output_rule == "mean":
            output = was.output + weight * output
        elif self.output_rule == "interpolate":
            output = weight * output + (1.0 - weight) * was.output
        elif was.running is not None:
            output = torch.where(was.running.unsqueeze(-1), output, was.output)
        return now._replace(output=output)

    def cost(self, last: Progress, *, padding: Padding | None, min_steps: int) -> Scalar:
        """The mean of ``N + R`` over real positions (Graves 2016, equation 11)."""
        return mean_over_positions(last.steps + last.remainder, padding=padding)


class ACT(Accumulating):
    """Adaptive computation time: ``p = sigmoid(w · x + b)`` of the timed state ``x = H^{t-1} + P^t``.

    At least in float32; ``scope="sequence"`` averages p over the real positions.
    """

    def __init__(self, width: int, config: HaltingConfig, *, max_steps: int = 1) -> None:
        super().__init__()
        self.config, self.max_steps = config, max_steps
        self.output_rule, self.halts_at_cap, self.scope = config.output, config.remainder_at_cap, config.scope
        self.frozen = config.state == "frozen"
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

    def logit(self, states: Vectors) -> Values:
        """``w · x + b`` of every position by itself, at least in float32, under autocast too."""
        if torch.is_autocast_enabled(states.device.type):
            with torch.autocast(states.device.type, enabled=False):
                return self.logit(states)
        dtype = accumulation_dtype(states.dtype)
        return linear(self.features(states).to(dtype), self.weight.to(dtype), self.bias.to(dtype)).squeeze(-1)

    def features(self, states: Vectors) -> Vectors:
        """What the affine map reads: the states."""
        return states

    def probability(self, was: Progress, step: Step) -> tuple[Values, tuple[Tensor, ...]]:
        p = torch.sigmoid(self.logit(self.read(step)))
        return step.context.mean_over_sequence(p) if self.scope == "sequence" else p, ()

    def read(self, step: Step) -> Vectors:
        """The states from which ``p`` follows."""
        return step.timed
