"""The gated transition of recent language models (Shazeer 2020)."""

import torch
from torch import nn
from torch.nn import init
from torch.nn.functional import silu

from universal_transformer.axes import Vectors
from universal_transformer.nn.context import Context, Number
from universal_transformer.nn.step_config import Sizes, TransitionConfig


class SwiGlu(nn.Module):
    """``Dropout(SiLU(x W) * (x V)) U`` with ``SiLU(x) = x sigmoid(x)``; ``W`` and ``V`` have ``filter_width`` columns.

    Of equal filter width it has 1.5 times the weights of ``feed_forward``.
    """

    pointwise = True

    def __init__(self, sizes: Sizes, config: TransitionConfig, *, causal: bool = False) -> None:
        super().__init__()
        del causal  # positions do not interact
        self.inner = nn.Linear(sizes.width, 2 * sizes.filter_width, bias=False)
        self.outer = nn.Linear(sizes.filter_width, sizes.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    @torch.no_grad()
    def initialise_parts(self) -> None:
        """Glorot uniform, each of the two joined matrices by itself."""
        for part in self.inner.weight.chunk(2):
            init.xavier_uniform_(part)

    def forward(self, states: Vectors, context: Context, *, slot: Number = 0) -> Vectors:
        del context, slot
        gate, value = self.inner(states).chunk(2, dim=-1)
        return self.outer(self.dropout(silu(gate) * value))
