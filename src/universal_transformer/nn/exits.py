"""Exits without a trained unit: a position stops when its state, or what the model predicts from it, stops changing.

``H^t`` is the state after step t as the head reads it (after the closing norm, where there is one), ``D_t = H^t -
H^{t-1}``, ``|·|`` the Euclidean norm, and ``P_t`` the distribution that the head computes from ``H^t``.

===================== =========================================================== =================================
kind                  a position makes its last step t when                       source
===================== =========================================================== =================================
``state_change``      ``|D_t| / |H^t| < ε``, from t = 2 on                        code of Geiping et al. 2025
                                                                                  (Huginn); arXiv 2606.18206
``second_difference`` ``|D_t - D_{t-1}| / |H^t| < ε`` at t and at t - 1, from     arXiv 2509.23314, there without
                      t = 4 on                                                    the division by ``|H^t|``
``output_change``     ``KL(P_{t-1} || P_t) = Σ_c P_{t-1}(c) log(P_{t-1}(c) /      Geiping et al. 2025 (arXiv
                      P_t(c)) < ε``, from t = 2 on                                2502.05171)
``confidence``        ``max_c P_t(c) > p``                                        after CALM (arXiv 2207.07061)
===================== =========================================================== =================================

An exit is a halting unit without weights: its p is 1 where the criterion holds and 0 elsewhere, the rule is
:func:`~universal_transformer.nn.halting.act`, the output is the last state, and others see the last state of a position
that has stopped (decisions D8 and D9). Where a model answers once for a sequence, all positions of a sequence stop
together: norms are then taken over all real positions, and the result is that of a fixed depth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from universal_transformer.axes import Bool, Float, PerStep, Scalar, Tensor
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.nn.config import Exit, HaltingConfig
from universal_transformer.nn.halting import Rule, Sequences, UnitState, accumulation_dtype, act

Head = Callable[[Tensor], Tensor]
"""States to logits: ``[*rows, width]`` to ``[*rows, classes]``, or ``[batch, position, width]`` to ``[batch,
classes]`` of a model that answers once for a sequence."""
FIRST_STEP = {"state_change": 2, "second_difference": 4, "output_change": 2, "confidence": 1}
"""The first step at which all states that a kind compares are those that a step computed."""

Values = Float[Tensor, "*rows"]
Vectors = Float[Tensor, "*rows channels"]


def relative(change: Vectors, states: Vectors, *, mean: Callable[[Values], Values]) -> Values:
    """``|change| / |states|``, with norms over what ``mean`` averages."""
    size = mean(states.square().sum(-1)).clamp(min=torch.finfo(states.dtype).tiny)
    return (mean(change.square().sum(-1)) / size).sqrt()


def _unchanged(values: Values) -> Values:
    return values


def divergence(before: Vectors, after: Vectors) -> Values:
    """``KL(before || after)`` of two distributions given as logarithms."""
    return (before.exp() * (before - after)).sum(-1)


def check_exit(exit: Exit) -> Exit:
    """``exit``; UserError for a value that is not an :class:`Exit`."""
    if not isinstance(exit, Exit):
        raise UserError(f'exit={show(exit)}: expected an Exit, such as Exit("confidence", 0.9)')
    return exit


@dataclass(frozen=True)
class ExitUnit:
    """Applies an :class:`Exit`. ``head``: what the exits that read the output need.

    UserError where there is no head.
    """

    exit: Exit
    head: Head | None = None
    scope: Literal["position", "sequence"] = "position"

    reads: ClassVar[Literal["new"]] = "new"
    rule: ClassVar[Rule] = staticmethod(act)
    threshold: ClassVar[float] = 0.5  # any: p is 0 or 1

    def __post_init__(self) -> None:
        if check_exit(self.exit).reads_output and self.head is None:
            raise UserError(
                f"exit {self.exit}: there is no head that reads these states; use state_change or second_difference"
            )

    @property
    def config(self) -> HaltingConfig:
        """The decisions that hold for every exit."""
        return HaltingConfig(output="final", state="frozen", scope=self.scope)

    @property
    def first_step(self) -> int:
        """The first step that can be the last one."""
        return FIRST_STEP[self.exit.kind]

    @torch.no_grad()
    def halting_probability(
        self, states: Vectors, unit_state: UnitState, *, sequences: Sequences
    ) -> tuple[Values, UnitState]:
        """``p`` after a step that computed ``states``, and what the next step compares with."""
        if self.exit.kind in ("state_change", "second_difference"):
            holds, unit_state = self._compare_states(
                states.to(accumulation_dtype(states.dtype)), unit_state, sequences=sequences
            )
        else:
            holds, unit_state = self._compare_outputs(states, unit_state, sequences=sequences)
        return holds.to(accumulation_dtype(states.dtype)), unit_state

    def cost(self, weights: PerStep, unit_state: UnitState, *, min_steps: int) -> Scalar | None:  # noqa: ARG002
        """Nothing was trained to stop."""
        return None

    def _compare_states(
        self, states: Vectors, unit_state: UnitState, *, sequences: Sequences
    ) -> tuple[Bool[Tensor, "*rows"], UnitState]:
        mean = _unchanged if self.scope == "position" else sequences.mean
        change = states - unit_state[0] if unit_state else states
        if self.exit.kind == "state_change":
            return relative(change, states, mean=mean) < self.exit.threshold, (states,)
        second = change - unit_state[1] if unit_state else change
        near = relative(second, states, mean=mean) < self.exit.threshold
        return near & unit_state[2] if unit_state else near, (states, change, near)

    def _compare_outputs(
        self, states: Vectors, unit_state: UnitState, *, sequences: Sequences
    ) -> tuple[Bool[Tensor, "*rows"], UnitState]:
        assert self.head is not None
        logits = self.head(states) if self.scope == "position" else sequences.apply(self.head, states)
        outputs = logits.to(accumulation_dtype(logits.dtype)).log_softmax(-1)
        if self.exit.kind == "confidence":
            return outputs.amax(-1).exp() > self.exit.threshold, ()
        change = divergence(unit_state[0], outputs) if unit_state else torch.full_like(outputs[..., 0], torch.inf)
        return change < self.exit.threshold, (outputs,)
