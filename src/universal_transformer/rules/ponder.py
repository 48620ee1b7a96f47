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

from universal_transformer.axes import Float, Padding, Scalar, Tensor, Values, Vectors
from universal_transformer.nn.halting import ACT, Progress, Step, mean_over_positions
from universal_transformer.nn.step_config import HaltingConfig


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


class StateProbability(ACT):
    """Rules whose ``λ_t`` follows from the state after step t, with ``p_t = λ_t (1 - Σ_{j<t} p_j)``.

    It starts with the same ``λ`` everywhere, as its last layer is 0.
    """

    @torch.no_grad()
    def initialise(self) -> None:
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.constant_(self.bias, self.first_bias)

    def read(self, step: Step) -> Vectors:
        return step.close(step.new)

    def decide(self, halted: Values, p: Values) -> tuple[Values, Values]:
        weight = p * (1.0 - halted)
        return (halted + weight).clamp(max=1.0 - torch.finfo(halted.dtype).eps), weight  # 1 is for those that halt


class PonderNet(StateProbability):
    """``λ_t`` from the state after the step. It starts at the rate of the prior, and the output is the last state.

    Its memory in training: the logits of all steps, from which the KL term is computed.
    """

    def __init__(self, width: int, config: HaltingConfig, *, max_steps: int = 1) -> None:
        super().__init__(width, config, max_steps=max_steps)
        self.output_rule = "final"

    @property
    def obstacle(self) -> str | None:
        return "in training with the rule ponder all positions make all steps" if self.training else super().obstacle

    @property
    def first_bias(self) -> float:
        """The initial bias: that of the configuration, or the logit of q."""
        rate = prior_rate(self.config, max_steps=self.max_steps)
        return math.log(rate / (1.0 - rate)) if self.config.bias is None else float(self.config.bias)

    def limit(self, threshold: float | Scalar) -> float | Scalar:
        """In training no position stops before the last step."""
        return 1.0 if self.training else threshold

    def probability(self, was: Progress, step: Step) -> tuple[Values, tuple[Tensor, ...]]:
        """``λ`` of each position; with the scope of a sequence from the mean of its states."""
        logit = self.logit(self.read(step))
        if self.scope == "sequence":
            logit = step.context.mean_over_sequence(logit)
        return torch.sigmoid(logit), (*was.memory, logit) if self.training else ()

    def cost(self, last: Progress, *, padding: Padding | None, min_steps: int) -> Scalar:
        """``KL(p || g)``, mean over positions (or sequences); steps before ``min_steps`` do not count.

        In inference, where nothing is trained, ``N + R``.
        """
        logits = last.memory
        if not logits:
            return super().cost(last, padding=padding, min_steps=min_steps)
        found = log_distribution(torch.stack(logits[min(min_steps, len(logits)) - 1 :]))
        prior = found.new_tensor(log_prior(len(found), config=self.config, max_steps=self.max_steps))
        divergence = (found.exp() * (found - prior.view(-1, 1, 1))).sum(0)
        return divergence[:, 0].mean() if self.scope == "sequence" else mean_over_positions(divergence, padding=padding)
