"""The recurrent transition function: what each position does with what it gathered.

``feed_forward``: ``ReLU(x W1 + b1) W2 + b2`` at each position (paper, section 2.1). ``separable_convolution``:
separable convolutions of width 3 and 5 over the sequence with a ReLU between (tensor2tensor; paper, section 2.1).
"""

from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.nn.functional import linear, pad

from universal_transformer.axes import Bool, Float, States, Tensor
from universal_transformer.nn.cache import LayerCache
from universal_transformer.nn.packed import TurningLinear, packs
from universal_transformer.nn.straight import is_straight

Gradient = Tensor | None


def two_products(states: Tensor, first: Tensor, shift: Tensor, second: Tensor, offset: Tensor) -> Tensor:
    """``ReLU(x W1 + b1) W2 + b2``: arguments in that order."""
    return linear(torch.relu_(linear(states, first, shift)), second, offset)


class TwoProducts(Function):
    """The same for training on a CPU, all arguments in one number type: the ReLU is part of the first product, and its
    derivative is applied in place, to a gradient that nothing else holds. The widest tensor of the block is passed
    over four times less.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, first: Tensor, shift: Tensor, second: Tensor, offset: Tensor
    ) -> Tensor:
        product = torch.ops.mkldnn._linear_pointwise
        rows = states.reshape(-1, states.shape[-1])
        hidden = product(rows, first, shift, "relu", [], "")
        ctx.save_for_backward(states, hidden, first, shift, second, offset)
        return product(hidden, second, offset, "none", [], "").view(states.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Gradient, ...]:
        gradient, (states, hidden, first, shift, second, offset) = gradients[0], ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # a gradient of this gradient is asked for
            inputs = (states, first, shift, second, offset)
            some = [each for each, want in zip(inputs, wanted, strict=True) if want]
            found = iter(torch.autograd.grad(two_products(*inputs), some, gradient, create_graph=True))
            return tuple(next(found) if want else None for want in wanted)
        product = torch.ops.mkldnn._linear_pointwise
        rows, outer = states.reshape(-1, states.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        inner = product(outer, second.t(), None, "none", [], "")
        torch.ops.aten.threshold_backward.grad_input(inner, hidden, 0, grad_input=inner)
        return (
            product(inner, first.t(), None, "none", [], "").view(states.shape) if wanted[0] else None,
            inner.t() @ rows if wanted[1] else None,
            inner.sum(0) if wanted[2] else None,
            outer.t() @ hidden if wanted[3] else None,
            outer.sum(0) if wanted[4] else None,
        )


def product_type(states: Tensor, weight: Tensor) -> torch.dtype | None:
    """The number type of ``states @ weight.T`` on a CPU: autocast's, or the common one of both; None without one."""
    kinds = {states.dtype, weight.dtype}
    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu") if kinds <= {torch.float32, torch.bfloat16} else None
    return states.dtype if len(kinds) == 1 else None


def fused(states: Tensor, first: nn.Linear, second: nn.Linear) -> Tensor | None:
    """:class:`TwoProducts` where it serves: with gradients, as it stands, on a CPU with oneDNN; None elsewhere.

    Under autocast, states and weights are cast here, so that gradients of weights are summed in the weights' own type.
    """
    if torch.compiler.is_compiling() or is_straight() or not torch.is_grad_enabled():
        return None
    kind = product_type(states, first.weight)
    if kind is None or not packs(first.weight, dtype=kind):
        return None
    inputs = (states, first.weight, first.bias, second.weight, second.bias)
    result: Tensor = TwoProducts.apply(*(each.to(kind) for each in inputs))  # type: ignore[no-untyped-call]
    return result


class FeedForward(nn.Module):
    """``ReLU(x W1 + b1) W2 + b2``; ``zero_padding`` gives 0 at padding, as t2t's pad remover does."""

    def __init__(
        self, width: int, *, filter_width: int, dropout: float = 0.0, zero_padding: bool = False
    ) -> None:
        super().__init__()
        self.inner = TurningLinear(width, filter_width)
        self.outer = TurningLinear(filter_width, width)
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
        drops = self.training and self.dropout.p > 0.0
        result = None if drops else fused(states, self.inner, self.outer)
        if result is None:
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
