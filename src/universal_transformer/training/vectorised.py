"""What `torch.func.vmap` does not do well by itself: linear maps of many rows, and fused attention.

A linear map of ``[rows, position, width]`` becomes a matrix product for each row, with a copy of the weights for each;
flattened to ``[rows · position, width]`` it is one for each member. Fused attention has no rule on a CPU; as it has no
weights, members are just more rows of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import linear, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from universal_transformer.axes import Tensor


class Folded(TorchFunctionMode):
    """Inside, linear maps flatten their rows, and attention takes members as rows."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls of the two functions go another way; all others go on as they are."""
        options = kwargs or {}
        if func is linear and args[0].ndim > 2:
            rows = args[0].shape[:-1]
            return linear(args[0].flatten(0, -2), *args[1:], **options).reshape(*rows, -1)
        if func is scaled_dot_product_attention:
            query, key, value = args
            mask, dropout = options["attn_mask"], options["dropout_p"]
            apply: Callable[..., Tensor] = _Attention.apply
            return apply(query, key, value, mask, dropout, options["is_causal"])
        return func(*args, **options)


class _Attention(torch.autograd.Function):
    """Fused attention whose rule folds members into the batch; gradients are those of what the rule calls."""

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool
    ) -> Tensor:
        """Outside of vmap there are no members to fold."""
        return scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: the rule's own operations know their gradients."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        dropout: float,
        causal: bool,
    ) -> tuple[Tensor, int]:
        """``[member, batch, heads, position, head]`` as ``[member · batch, heads, position, head]``."""

        def folded(tensor: Tensor, axis: int | None) -> Tensor:
            whole = tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
            return whole.flatten(0, 1)

        seen = None if mask is None else folded(mask, in_dims[3])
        output = scaled_dot_product_attention(
            folded(query, in_dims[0]),
            folded(key, in_dims[1]),
            folded(value, in_dims[2]),
            attn_mask=seen,
            dropout_p=dropout,
            is_causal=causal,
        )
        return output.reshape(info.batch_size, -1, *output.shape[1:]), 0
