"""The recurrent transition function: what each position does with what it gathered.

``feed_forward``: ``ReLU(x W1 + b1) W2 + b2`` at each position (paper, section 2.1). ``separable_convolution``:
separable convolutions of width 3 and 5 over the sequence with a ReLU between (tensor2tensor; paper, section 2.1).
"""

import torch
from torch import nn
from torch.nn.functional import pad

from universal_transformer.axes import Bool, Float, States, Tensor
from universal_transformer.nn.cache import LayerCache


class FeedForward(nn.Module):
    """``ReLU(x W1 + b1) W2 + b2``; ``zero_padding`` gives 0 at padding, as t2t's pad remover does."""

    def __init__(
        self, width: int, *, filter_width: int, dropout: float = 0.0, zero_padding: bool = False
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(width, filter_width)
        self.outer = nn.Linear(filter_width, width)
        self.dropout = nn.Dropout(dropout)
        self.zero_padding = zero_padding

    def forward(
        self,
        states: Float[Tensor, "*rows width"],
        *,
        padding: Bool[Tensor, "batch stored"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*rows width"]:
        del cache  # positions do not meet here; with a cache ``padding`` covers the stored ones too
        result = self.outer(self.dropout(torch.relu_(self.inner(states))))
        if self.zero_padding and padding is not None:
            result = result.masked_fill(padding[:, -states.shape[1] :].unsqueeze(-1), 0.0)
        return result


class SeparableConvolution1d(nn.Module):
    """A depthwise convolution of width ``kernel``, then a pointwise one with bias; zero outside the sequence."""

    def __init__(self, width: int, out_width: int, *, kernel: int, causal: bool) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width, bias=False)
        self.pointwise = nn.Linear(width, out_width)
        self.reach = (kernel - 1, 0) if causal else (kernel // 2, kernel // 2)

    def forward(
        self, states: Float[Tensor, "batch position in_width"]
    ) -> Float[Tensor, "batch position out_width"]:
        filtered = self.depthwise(pad(states.transpose(1, 2), self.reach))
        return self.pointwise(filtered.transpose(1, 2))


class SeparableConvolution(nn.Module):
    """``conv5(ReLU(conv3(x)))``, padding zeroed before each; left-padded when ``causal``."""

    REACH = 6  # how far to the left the two convolutions together look

    def __init__(self, width: int, *, filter_width: int, causal: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = SeparableConvolution1d(width, filter_width, kernel=3, causal=causal)
        self.second = SeparableConvolution1d(filter_width, width, kernel=5, causal=causal)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        states: States,
        *,
        padding: Bool[Tensor, "batch stored"] | None = None,
        cache: LayerCache | None = None,
    ) -> States:
        """With ``cache``, ``padding`` covers all stored positions and the new ones."""
        new = states.shape[1]
        if cache is not None:
            states = cache.extend(states, reach=self.REACH)
            if padding is not None:
                padding = padding[:, -states.shape[1] :]
        blank = None if padding is None else padding.unsqueeze(-1)
        if blank is not None:
            states = states.masked_fill(blank, 0.0)
        hidden = self.dropout(torch.relu_(self.first(states)))
        if blank is not None:
            hidden = hidden.masked_fill(blank, 0.0)
        return self.second(hidden)[:, -new:]
