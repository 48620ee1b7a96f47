"""Stick-breaking halting: others see, and the output is, the expected state (Tan et al. 2023, arXiv 2310.07096).

With ``λ_t = sigmoid(w · GELU(W H^t + c) + b)`` after step t and ``p_t = λ_t Π_{j<t} (1 - λ_j)``,

``s^t = Σ_{j<t} p_j H^j + (1 - Σ_{j<t} p_j) H^t``,  ``s^0 = H^0``.

In self-attention queries are computed from ``H^t + P^{t+1}``, and keys and values from ``s^t + P^{t+1}``. The output is
``s^T``. A position stops when ``Σ_{j≤t} p_j`` exceeds the threshold, in training too: its s stays as it is. The ponder
cost is the expected number of steps, ``Σ_t t p_t`` with the rest at the last step, mean over positions.
"""

import torch
from torch import nn
from torch.nn.functional import gelu

from universal_transformer.axes import Float, PerStep, Scalar, Tensor
from universal_transformer.nn.config import HaltingConfig
from universal_transformer.nn.halting import HaltingUnit, Rule, UnitState, ponder


class StickBreakingUnit(HaltingUnit):
    """``λ_t`` from the state after the step. It starts with the same ``λ`` everywhere, as its last layer is 0."""

    reads = "new"
    rule: Rule = staticmethod(ponder)

    def __init__(self, width: int, config: HaltingConfig, *, max_steps: int = 1) -> None:
        super().__init__(width, config, max_steps=max_steps)
        self.inner = nn.Linear(width, width)

    @torch.no_grad()
    def initialise(self) -> None:
        """Start with the same distribution everywhere."""
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, self.first_bias)

    def features(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """The hidden layer."""
        return gelu(self.inner(states))

    def cost(self, weights: PerStep, unit_state: UnitState, *, min_steps: int) -> Scalar:  # noqa: ARG002
        """The expected number of steps, mean over the positions that took any."""
        number = torch.arange(1, len(weights) + 1, device=weights.device, dtype=weights.dtype)
        count = (weights.sum(0) > 0).sum().clamp(min=1)
        return (weights * number.view(-1, 1, 1)).sum() / count


def expected_state(
    output: Float[Tensor, "*rows width"], new: Float[Tensor, "*rows width"], cumulative: Float[Tensor, "*rows"]
) -> Float[Tensor, "*rows width"]:
    """``s^t`` from ``Σ_{j<t} p_j H^j`` (the output so far), ``H^t`` and ``Σ_{j<t} p_j``."""
    return (output + (1.0 - cumulative).unsqueeze(-1) * new).to(new.dtype)
