"""PonderNet: a distribution over the step at which a position stops (Banino et al. 2021, arXiv 2107.05407).

With ``λ_t = sigmoid(w · H^t + b)`` after step t, the probability that step t is the last one is

``p_t = λ_t Π_{j<t} (1 - λ_j)``,  ``p_T = Π_{j<T} (1 - λ_j)``,

and the loss is ``Σ_t p_t CE_t + β KL(p || g)``. CE_t is the cross-entropy of the logits of ``H^t``. The prior g is
geometric, ``g_t = q (1 - q)^{t-1}`` with ``g_T`` the rest and ``q = 1 / prior_steps``, or uniform. The weight β is
``training.ponder_weight``.

In training all positions make all steps and others see ``H^t``. In inference a position stops at the first step t at
which ``Σ_{j≤t} p_j`` exceeds ``halting.quantile`` (0.5: the median), and then others see its last state.
"""

import math

import torch
from torch.nn.functional import logsigmoid

from universal_transformer.axes import Bool, Float, PerStep, Scalar, Tensor
from universal_transformer.nn.config import HaltingConfig
from universal_transformer.nn.halting import Decision, HaltingUnit, Sequences, UnitState, ponder


def log_distribution(logits: Float[Tensor, "step *rows"]) -> Float[Tensor, "step *rows"]:
    """``log p_t`` from the logits of ``λ_t``; the last step takes the rest."""
    stays = logsigmoid(-logits).cumsum(0)
    before = torch.cat((torch.zeros_like(stays[:1]), stays[:-1]))
    return torch.cat((logsigmoid(logits[:-1]) + before[:-1], before[-1:]))


def log_prior(steps: int, *, config: HaltingConfig, max_steps: int) -> list[float]:
    """``log g_t`` for ``steps`` steps; ``max_steps`` are those of the configuration."""
    if config.prior == "uniform":
        return [-math.log(steps)] * steps
    rate = prior_rate(config, max_steps=max_steps)
    return [t * math.log1p(-rate) + (math.log(rate) if t < steps - 1 else 0.0) for t in range(steps)]


def prior_rate(config: HaltingConfig, *, max_steps: int) -> float:
    """``q = 1 / prior_steps`` of the geometric prior; by default ``prior_steps = (max_steps + 1) / 2``."""
    return min(1.0 / (config.prior_steps or (max_steps + 1) / 2), 0.99)


class PonderUnit(HaltingUnit):
    """``λ_t`` from the state after the step. It starts at the rate of the prior.

    Its ``unit_state`` in training: the logits of all steps, from which the KL term is computed.
    """

    reads = "new"

    @property
    def first_bias(self) -> float:
        """The initial bias: that of the configuration, or the logit of q."""
        rate = prior_rate(self.config, max_steps=self.max_steps)
        return math.log(rate / (1.0 - rate)) if self.config.bias is None else float(self.config.bias)

    @torch.no_grad()
    def initialise(self) -> None:
        """Start with the same distribution everywhere."""
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.constant_(self.bias, self.first_bias)

    def rule(
        self,
        cumulative: Float[Tensor, "*rows"],
        probability: Float[Tensor, "*rows"],
        *,
        threshold: float,
        stop: bool | Bool[Tensor, "*rows"],
    ) -> Decision:
        """As :func:`ponder`; in training no position stops before the last step."""
        return ponder(cumulative, probability, threshold=1.0 if self.training else threshold, stop=stop)

    def halting_probability(
        self, states: Float[Tensor, "*rows width"], unit_state: UnitState, *, sequences: Sequences
    ) -> tuple[Float[Tensor, "*rows"], UnitState]:
        """``λ`` of each row; with the scope of a sequence from the mean of its states."""
        logit = self.logit(states)
        if self.config.scope == "sequence":
            logit = sequences.mean(logit)
        return torch.sigmoid(logit), (*unit_state, logit) if self.training else ()

    def cost(self, weights: PerStep, unit_state: UnitState, *, min_steps: int) -> Scalar | None:
        """``KL(p || g)``, mean over positions (or sequences), in training; steps before ``min_steps`` do not count."""
        if not unit_state:
            return None
        found = log_distribution(torch.stack(unit_state[min(min_steps, len(unit_state)) - 1 :]))
        prior = found.new_tensor(log_prior(len(found), config=self.config, max_steps=self.max_steps))
        divergence = (found.exp() * (found - prior.view(-1, 1, 1))).sum(0)
        if self.config.scope == "sequence":
            return divergence[:, 0].mean()
        running = weights.sum(0) > 0
        return divergence.masked_fill(~running, 0.0).sum() / running.sum().clamp(min=1)
