"""Keys and values of halted positions at every depth step, from one projection.

A position that has halted keeps its state ``h``; what others see of it at step ``t`` is ``b + τ_t`` with ``b = h + π``.
After post-norm it is projected as it is, ``(b + τ_t) W = b W + τ_t W``. The second term is the same for all keys, adds
the same number to every logit of a query, and softmax does not see it; of a value it is a constant after attention,
whose weights sum to 1. With pre-norm a LayerNorm stands in between,

``LayerNorm(b + τ_t) W = (c(b) + c(τ_t)) γ W / σ_t + β W``,  ``σ_t² = var(b) + 2 cov(b, τ_t) + var(τ_t) + ε``,

where ``c(x) = x - mean(x)``. So ``c(b) γ W`` is computed once, ``c(τ_t) γ W`` is a row of a table, ``σ_t`` is one
number a position and step, and ``β W`` is a constant as above. Either way a halted position is projected once, when
it halts, however many steps other positions make. RMSNorm subtracts no mean: there ``c(x) = x`` and ``β = 0``.

Rotary positions rotate each key by an angle of its position. What is the same for all keys before the rotation is not
the same after it, so that it is added to the keys before. A rotation costs some operations a channel, and no matrix
product.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

from universal_transformer.axes import Float, Int, KeysAndValues, Rows, Tensor, Vectors
from universal_transformer.nn.block import Block
from universal_transformer.nn.halting import accumulation_dtype


class Projected(NamedTuple):
    """Keys and values of rows without their step part, and ``σ_t²`` of all steps where it is needed."""

    rows: KeysAndValues
    variance: Float[Tensor, "row step"] | None

    def choose(self, index: Int[Tensor, "kept"]) -> "Projected":
        """Only the rows ``index``."""
        variance = None if self.variance is None else self.variance.index_select(0, index)
        return Projected(self.rows.index_select(0, index), variance)

    def put(self, index: Int[Tensor, "kept"], new: "Projected") -> None:
        """Overwrite the rows ``index``."""
        for mine, theirs in zip(self, new, strict=True):
            if mine is not None and theirs is not None:
                mine.index_copy_(0, index, theirs)


class HaltedProjection:
    """The projection of a block's keys and values, for halted positions.

    ``signals``: ``τ`` of all steps; None without step signals (then a halted position looks the same at every step).
    """

    def __init__(self, block: Block, *, signals: Float[Tensor, "step width"] | None) -> None:
        attention, sublayer = block.attention, block.after_attention
        width = attention.query_key_value.in_features
        self.norm = sublayer.norm if sublayer.closes else None
        self.centres = isinstance(sublayer.norm, nn.LayerNorm)
        linear_map = attention.query_key_value
        self.weight: Tensor = linear_map.weight[width:]
        self.bias: Tensor | None = None if linear_map.bias is None else linear_map.bias[width:]
        self.part: Tensor | None = None  # of each step
        self.constant: Tensor | None = None  # of all
        if signals is None:
            return
        if self.norm is None:
            self.part = linear(signals.to(self.weight.dtype), self.weight)
            return
        signals = signals.to(accumulation_dtype(signals.dtype))
        centred = self._centred(signals)
        shift = getattr(self.norm, "bias", None)
        self.constant = linear(torch.zeros_like(self.norm.weight) if shift is None else shift, self.weight, self.bias)
        self.weight, self.bias = self.weight * self.norm.weight, None
        self.part = linear(centred.to(self.weight.dtype), self.weight)
        self.covariance = (centred * (2.0 / width)).t()
        self.epsilon = torch.finfo(centred.dtype).eps if self.norm.eps is None else self.norm.eps
        self.variance = centred.square().mean(-1) + self.epsilon

    @property
    def moves(self) -> bool:
        """Whether a halted position looks different at every step."""
        return self.norm is not None and self.part is not None

    def project(self, base: Rows) -> Projected:
        """The projection of rows whose states are ``b``."""
        if not self.moves:
            seen = base if self.norm is None else self.norm(base)
            return Projected(linear(seen, self.weight, self.bias), None)
        if not torch.is_autocast_enabled(base.device.type):
            variance, centred = self._spread(base)
        else:
            with torch.autocast(base.device.type, enabled=False):
                variance, centred = self._spread(base)
        return Projected(linear(centred, self.weight), variance)

    def _spread(self, base: Rows) -> tuple[Float[Tensor, "row step"], Rows]:
        """``σ_t²`` of every step, and ``c(b)``."""
        assert self.norm is not None
        exact = base.to(self.variance.dtype)
        centred = self._centred(exact)
        own = torch.linalg.vecdot(centred, centred).unsqueeze(1) * (1.0 / centred.shape[1])
        variance = torch.addmm(self.variance, exact, self.covariance) + own
        return variance.clamp_min(self.epsilon), centred.to(base.dtype)  # rounding must not turn it negative

    def _centred(self, states: Vectors) -> Vectors:
        """``c(x)``: without the mean, where the norm subtracts it."""
        return states - states.mean(-1, keepdim=True) if self.centres else states

    def at(self, step: int) -> Float[Tensor, "channel"] | None:
        """The part of ``step`` in keys and values as it sees them, up to what is the same for all: ``(rows + part) /
        σ``.
        """
        return self.part[step] if self.moves and self.part is not None else None

    def shift(self, step: int) -> Float[Tensor, "channel"] | None:
        """The part of all keys and values at ``step`` that is left out because it is the same for all."""
        return self.constant if self.moves else None if self.part is None else self.part[step]

    def whole(self, base: Rows, *, steps: Int[Tensor, "row seen"]) -> Float[Tensor, "row seen channel"]:
        """Complete keys and values of each row at its own ``steps``."""
        kept = self.project(base)
        rows = kept.rows.unsqueeze(1)
        if self.part is None:
            return rows.expand(-1, steps.shape[1], -1)
        found = self.part.index_select(0, steps.flatten()).view(*steps.shape, -1).add_(rows)
        if kept.variance is None or self.constant is None:
            return found
        scale = kept.variance.gather(1, steps).rsqrt().to(found.dtype)
        return found.mul_(scale.unsqueeze(2)).add_(self.constant)
