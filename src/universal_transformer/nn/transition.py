"""The recurrent transition function, applied after attention (paper, section 2.1).

``feed_forward``: ``ReLU(x W1 + b1) W2 + b2`` at each position. ``separable_convolution``: separable convolutions of
width 3 and 5 over the sequence with a ReLU between them (tensor2tensor).

A transition is a module ``Transition(sizes, config, causal=...)``. It is called with states, the padding to ignore and
the cache of earlier positions. An attribute ``pointwise`` that is True promises that positions do not interact.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import pad

from universal_transformer.axes import Bool, Float, States, Tensor
from universal_transformer.nn.cache import LayerCache
from universal_transformer.nn.config import Sizes, TransitionConfig


def feed_forward(
    states: Float[Tensor, "*rows width"], inner: nn.Linear, outer: nn.Linear, dropout: nn.Dropout
) -> Float[Tensor, "*rows width"]:
    """``Dropout(ReLU(x W1 + b1)) W2 + b2``."""
    return outer(dropout(torch.relu_(inner(states))))


class FeedForward(nn.Module):
    """:func:`feed_forward` with its parameters."""

    pointwise = True
    kernel: Callable[[Tensor, nn.Linear, nn.Linear, nn.Dropout], Tensor] = staticmethod(feed_forward)
    """The function that computes it."""

    def __init__(self, sizes: Sizes, config: TransitionConfig, *, causal: bool = False) -> None:
        super().__init__()
        del causal  # positions do not interact
        self.inner = nn.Linear(sizes.width, sizes.filter_width)
        self.outer = nn.Linear(sizes.filter_width, sizes.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        states: Float[Tensor, "*rows width"],
        *,
        padding: Bool[Tensor, "batch stored"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*rows width"]:
        del padding, cache
        return self.kernel(states, self.inner, self.outer, self.dropout)


class SeparableConvolution1d(nn.Module):
    """A depthwise convolution of width ``kernel``, then a pointwise one with bias; zero outside the sequence."""

    def __init__(self, width: int, out_width: int, *, kernel: int, causal: bool) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width, bias=False)
        self.pointwise = nn.Linear(width, out_width)
        self.reach = (kernel - 1, 0) if causal else (kernel // 2, kernel // 2)

    def forward(self, states: Float[Tensor, "batch position in_width"]) -> Float[Tensor, "batch position out_width"]:
        filtered = self.depthwise(pad(states.transpose(1, 2), self.reach))
        return self.pointwise(filtered.transpose(1, 2))


class SeparableConvolution(nn.Module):
    """``conv5(ReLU(conv3(x)))``. Padding is zeroed before each convolution; a causal one is padded on the left."""

    pointwise = False
    REACH = 6  # positions to the left that the two convolutions together see

    def __init__(self, sizes: Sizes, config: TransitionConfig, *, causal: bool = False) -> None:
        super().__init__()
        self.first = SeparableConvolution1d(sizes.width, sizes.filter_width, kernel=3, causal=causal)
        self.second = SeparableConvolution1d(sizes.filter_width, sizes.width, kernel=5, causal=causal)
        self.dropout = nn.Dropout(config.dropout)

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
