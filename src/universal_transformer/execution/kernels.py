"""CPU kernels for the transition and for attention: the same functions as in ``nn/``, computed with fewer passes.

The plain functions are used on other devices, while compiling, inside transforms of ``torch.func``, for gradients of
gradients, and for linear maps of another class or with hooks.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.nn.functional import linear, scaled_dot_product_attention

from universal_transformer.axes import Bool, Float, Heads, Tensor
from universal_transformer.execution import policy
from universal_transformer.execution.packing import packs
from universal_transformer.nn import attention, transition
from universal_transformer.torch_private import in_transform, is_unchanged, product

Gradient = Tensor | None


def feed_forward_product(states: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """``ReLU(x W1 + b1) W2 + b2``: arguments in that order."""
    return linear(torch.relu_(linear(states, w1, b1)), w2, b2)


class FeedForwardProduct(Function):
    """The same for training on a CPU, all arguments in one number type: the ReLU is part of the first product, and its
    derivative is applied in place, to a gradient that nothing else holds. The widest tensor of the block is passed
    over four times less.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        rows = states.reshape(-1, states.shape[-1])
        hidden = product(rows, w1, b1, then="relu")
        ctx.save_for_backward(states, hidden, w1, b1, w2, b2)
        return product(hidden, w2, b2).view(states.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Gradient, ...]:
        gradient, (states, hidden, w1, b1, w2, b2) = gradients[0], ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # a gradient of this gradient is asked for
            inputs = (states, w1, b1, w2, b2)
            some = [each for each, want in zip(inputs, wanted, strict=True) if want]
            found = iter(torch.autograd.grad(feed_forward_product(*inputs), some, gradient, create_graph=True))
            return tuple(next(found) if want else None for want in wanted)
        rows, outer = states.reshape(-1, states.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        inner = product(outer, w2.t(), None)
        torch.ops.aten.threshold_backward.grad_input(inner, hidden, 0, grad_input=inner)
        return (
            product(inner, w1.t(), None).view(states.shape) if wanted[0] else None,
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
    """:class:`FeedForwardProduct` where it serves: with gradients, as it stands, on a CPU with oneDNN; None elsewhere.

    Under autocast, states and weights are cast here, so that gradients of weights are summed in the weights' own type.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or in_transform():
        return None
    if not all(type(each) is nn.Linear and is_unchanged(each) for each in (first, second)):
        return None
    kind = product_type(states, first.weight)
    if kind is None or not packs(first.weight, dtype=kind):
        return None
    inputs = (states, first.weight, first.bias, second.weight, second.bias)
    result: Tensor = FeedForwardProduct.apply(*(each.to(kind) for each in inputs))  # type: ignore[no-untyped-call]
    return result


def feed_forward(
    states: Float[Tensor, "*rows width"], inner: nn.Linear, outer: nn.Linear, dropout: nn.Dropout
) -> Float[Tensor, "*rows width"]:
    """As :func:`universal_transformer.nn.transition.feed_forward`."""
    if not (dropout.training and dropout.p > 0.0):
        result = fused(states, inner, outer)
        if result is not None:
            return result
    return transition.feed_forward(states, inner, outer, dropout)


def computes_in_float32(query: Heads, key: Float[Tensor, "batch heads key head"]) -> bool:
    """Whether 16-bit attention is computed in float32: on a CPU, for one query or few keys, where it is faster."""
    if query.device.type != "cpu" or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    if query.shape[2] == 1:
        return True
    return not torch.compiler.is_compiling() and max(query.shape[2], key.shape[2]) <= policy.FLOAT32_UP_TO_KEYS


def attend(
    query: Heads,
    key: Float[Tensor, "batch heads key head"],
    value: Float[Tensor, "batch heads key head"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Heads:
    """As :func:`universal_transformer.nn.attention.attend`."""
    if not computes_in_float32(query, key):
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    # converted position by position, as they are stored, which takes longer stretches of memory than head by head
    q, k, v = (part.transpose(1, 2).float().transpose(1, 2) for part in (query, key, value))
    with torch.autocast("cpu", enabled=False):  # which would convert them back to 16 bits
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return mixed.to(query.dtype)


def install_kernels(module: nn.Module) -> None:
    """Let the attention and the feed-forward transitions inside ``module`` use these kernels."""
    for part in module.modules():
        if isinstance(part, attention.Attention):
            part.kernel = attend
        elif isinstance(part, transition.FeedForward):
            part.kernel = feed_forward
