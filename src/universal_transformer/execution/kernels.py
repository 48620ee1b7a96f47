"""Attention of 16-bit numbers on a CPU with gradients, computed in float32."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from universal_transformer.axes import Bool, Float, Heads, Tensor
from universal_transformer.nn.attention import Attention

Keys = Float[Tensor, "batch heads key head"]


def computes_in_float32(query: Heads, key: Keys) -> bool:
    """Whether 16-bit attention is computed in float32: on a CPU with gradients, where forward and backward pass take
    0.06 to 0.35 of the time (heads of 32 channels, 20 to 512 positions). Without gradients the times are the same.
    """
    half = query.dtype in (torch.bfloat16, torch.float16)
    trained = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    return half and trained and query.device.type == "cpu" and not torch.compiler.is_compiling()


def attend(
    query: Heads,
    key: Keys,
    value: Keys,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Heads:
    """As :func:`universal_transformer.nn.attention.attend`."""
    if not computes_in_float32(query, key):
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    with torch.autocast("cpu", enabled=False):  # which would convert them back to 16 bits
        q, k, v = query.float(), key.float(), value.float()
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return mixed.to(query.dtype)


def install_kernels(module: nn.Module) -> None:
    """Let the attention inside ``module`` use this one."""
    for part in module.modules():
        if isinstance(part, Attention):
            part.kernel = attend
