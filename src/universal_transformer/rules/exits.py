"""Exits without a trained unit: a position stops when its state, or what the model predicts from it, stops changing.

``H^t`` is the state after step t as the head reads it (after the closing norm, where there is one), ``|·|`` the
Euclidean norm, and ``P_t`` the distribution that the head computes from ``H^t``.

================= =============================================================== =================================
exit              a position makes its last step t when                           source
================= =============================================================== =================================
``state_change``  ``|H^t - H^{t-1}| / |H^t| < ε``, from t = 2 on                  code of Geiping et al. 2025
                                                                                  (Huginn); arXiv 2606.18206
``output_change`` ``KL(P_{t-1} || P_t) = Σ_c P_{t-1}(c) log(P_{t-1}(c) /          Geiping et al. 2025 (arXiv
                  P_t(c)) < ε``, from t = 2 on                                    2502.05171)
``confidence``    ``max_c P_t(c) > p``                                            after CALM (arXiv 2207.07061)
================= =============================================================== =================================

An exit is a rule without weights: its p is 1 where the criterion holds and 0 elsewhere, the output is the last state,
and others see the last state of a position that has stopped (decisions D8 and D9). Where a model answers once for a
sequence, all positions of a sequence stop together: norms are then taken over all real positions, and the result is
that of a fixed depth.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import torch

from universal_transformer.axes import Bool, Float, Scalar, Tensor, Values, Vectors
from universal_transformer.nn.context import Context
from universal_transformer.nn.halting import Accumulating, Progress, Step, accumulation_dtype

Head = Callable[[Tensor], Tensor]
"""States to logits: ``[*rows, width]`` to ``[*rows, classes]``, or ``[batch, position, width]`` to ``[batch,
classes]`` of a model that answers once for a sequence."""
Compared = tuple[Bool[Tensor, "*rows"], tuple[Tensor, ...]]


def _ratios(first: float, last: float) -> list[float]:
    """20 numbers from ``first`` to ``last`` in equal ratios."""
    return [first * (last / first) ** (place / 19) for place in range(20)]


class ExitRule(Accumulating):
    """A criterion to stop at. ``head``: what the exits that read the output need."""

    output_rule = "final"
    reads_output: ClassVar[bool] = False
    """Whether it compares what a model predicts, not its states."""
    most: ClassVar[float] = math.inf
    """The largest threshold that means anything."""
    tried: ClassVar[tuple[float, ...]] = ()
    """Thresholds that a calibration tries, the nearest to full depth first."""

    def __init__(self, threshold: float, head: Head | None = None, *, scope: str = "position") -> None:
        super().__init__()
        self.criterion, self.scope = threshold, scope
        self.head = (head,)  # a tuple, so that the modules of a model are not registered twice

    def holds(self, states: Vectors, memory: tuple[Tensor, ...], context: Context) -> Compared:
        """Where the criterion holds after a step that computed ``states``, and what the next step compares with."""
        raise NotImplementedError

    def limit(self, threshold: float | Scalar) -> float | Scalar:
        return 0.5  # p is 0 or 1

    @torch.no_grad()
    def probability(self, was: Progress, step: Step) -> tuple[Values, tuple[Tensor, ...]]:
        holds, memory = self.holds(step.close(step.new), was.memory, step.context)
        return holds.to(was.halted.dtype), memory

    def distribution(self, states: Vectors, context: Context) -> Float[Tensor, "*rows classes"]:
        """``log P_t``."""
        (head,) = self.head
        assert head is not None
        logits = head(states) if self.scope == "position" else context.over_sequence(head, states)
        return logits.to(accumulation_dtype(logits.dtype)).log_softmax(-1)


class StateChange(ExitRule):
    """The state changes little."""

    first_step = 2
    tried = tuple(float(f"{change:.3g}") for change in _ratios(0.01, 1.0))

    def holds(self, states: Vectors, memory: tuple[Tensor, ...], context: Context) -> Compared:
        states = states.to(accumulation_dtype(states.dtype))
        mean = context.mean_over_sequence if self.scope == "sequence" else lambda values: values
        change = states - memory[0] if memory else states
        size = mean(states.square().sum(-1)).clamp(min=torch.finfo(states.dtype).tiny)
        return (mean(change.square().sum(-1)) / size).sqrt() < self.criterion, (states,)


class OutputChange(ExitRule):
    """What the model predicts changes little."""

    first_step = 2
    tried = tuple(float(f"{change:.3g}") for change in _ratios(1e-4, 1.0))
    reads_output = True

    def holds(self, states: Vectors, memory: tuple[Tensor, ...], context: Context) -> Compared:
        outputs = self.distribution(states, context)
        if not memory:
            return torch.zeros_like(outputs[..., 0], dtype=torch.bool), (outputs,)
        (before,) = memory
        return (before.exp() * (before - outputs)).sum(-1) < self.criterion, (outputs,)


class Confidence(ExitRule):
    """The model is sure of what it predicts."""

    most = 1.0
    tried = tuple(round(odds / (1 + odds), 4) for odds in _ratios(2000.0, 0.25))  # from 0.9995 to 0.2
    reads_output = True

    def holds(self, states: Vectors, memory: tuple[Tensor, ...], context: Context) -> Compared:
        return self.distribution(states, context).amax(-1).exp() > self.criterion, ()
