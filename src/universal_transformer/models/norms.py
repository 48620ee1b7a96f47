"""Norms beyond the paper's (decision D6). A sub-layer f with input x is ``y = after(x, f(before(x)))``.

============ ================ =============================== =======================
norm         before(x)        after(x, z)                     source
============ ================ =============================== =======================
`PreNorm`    ``LayerNorm(x)`` ``x + Dropout(z)``              tensor2tensor
`DeepNorm`   ``x``            ``LayerNorm(α x + Dropout(z))`` Wang et al. 2022
`PreRmsNorm` ``RMSNorm(x)``   ``x + Dropout(z)``              Zhang and Sennrich 2019
============ ================ =============================== =======================
"""

from torch import nn

from universal_transformer.axes import Vectors
from universal_transformer.nn.block import PostNorm
from universal_transformer.nn.step_config import StepConfig


class PreNorm(PostNorm):
    """LayerNorm before the function; the residual is never normalised."""

    by_rows = closes = True

    def before(self, states: Vectors) -> Vectors:
        return self.norm(states)

    def forward(self, states: Vectors, change: Vectors) -> Vectors:
        return states + self.dropout(change)


class DeepNorm(PostNorm):
    """PostNorm with the residual ``α x``, ``α = n^(1/4)``, where n counts the sub-layers applied over the depth.

    The values, outputs and transitions begin smaller, by ``β = (4 n)^(-1/4) = α^-1 / √2`` (`models/initialise.py`).

    Wang et al. 2022, table 1: ``n = 2 N`` of an encoder or a decoder alone with N layers, and ``n = 3 M`` of the
    decoder of an encoder-decoder with M layers. For the encoder of an encoder-decoder the paper has
    ``α = 0.81 (N^4 M)^(1/16)`` and ``β = 0.87 (N^4 M)^(-1/16)``; this model uses the constants of an encoder alone
    there too.
    """

    by_rows = True

    def __init__(self, width: int, config: StepConfig, *, sublayers: int = 1) -> None:
        super().__init__(width, config)
        self.scale = float(sublayers**0.25)

    def forward(self, states: Vectors, change: Vectors) -> Vectors:
        return self.norm(self.scale * states + self.dropout(change))


class PreRmsNorm(PreNorm):
    """PreNorm with ``RMSNorm(x) = γ x / sqrt(mean(x²) + ε)`` in place of LayerNorm."""

    by_rows = True
    normalise = nn.RMSNorm
