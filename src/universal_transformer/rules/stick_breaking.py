"""Stick-breaking halting: others see, and the output is, the expected state (Tan et al. 2023, arXiv 2310.07096).

With ``λ_t = sigmoid(w · GELU(W H^t + c) + b)`` after step t, ``p_t = λ_t Π_{j<t} (1 - λ_j)`` and ``h_t = Σ_{j≤t} p_j``,

``s^t = Σ_{j<t} p_j H^j + (1 - h_{t-1}) H^t = S^t + (1 - h_t) H^t``,  ``s^0 = H^0``.

In self-attention queries are computed from ``H^t + P^{t+1}``, and keys and values from ``s^t + P^{t+1}``. The output is
``s^T``. A position stops when ``h_t`` exceeds the threshold, in training too: its s stays as it is. The ponder cost is
the expected number of steps, ``Σ_t t p_t`` with the rest at the last step, mean over positions.
"""

import torch
from torch import nn
from torch.nn.functional import gelu

from universal_transformer.axes import Padding, Scalar, Vectors
from universal_transformer.nn.halting import Progress
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.rules.ponder import StateProbability


class StickBreaking(StateProbability):
    """The equations of this module."""

    def __init__(self, width: int, config: HaltingConfig, *, max_steps: int = 1) -> None:
        super().__init__(width, config, max_steps=max_steps)
        self.inner = nn.Linear(width, width)

    def features(self, states: Vectors) -> Vectors:
        """The hidden layer."""
        return gelu(self.inner(states))

    def start(self, states: Vectors, padding: Padding | None, *, blocks: int = 1) -> Progress:
        return super().start(states, padding, blocks=blocks)._replace(shown=states)

    def combine(self, was: Progress, now: Progress) -> Progress:
        """The output, and ``s^t``; of a position that has halted h is 1, and s the output."""
        now = super().combine(was, now)
        assert now.output is not None
        shown = now.output + (1.0 - now.halted).unsqueeze(-1) * now.states
        return now._replace(shown=shown.to(now.states.dtype))

    def cost(self, last: Progress, *, padding: Padding | None, min_steps: int) -> Scalar:
        """The expected number of steps, mean over the positions that took any."""
        weights = torch.stack([made.weight for made in last.history if made.weight is not None])
        number = torch.arange(1, len(weights) + 1, device=weights.device, dtype=weights.dtype)
        count = (weights.sum(0) > 0).sum().clamp(min=1)
        return (weights * number.view(-1, 1, 1)).sum() / count
