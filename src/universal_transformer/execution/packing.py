"""Matrices stored in the layout in which a CPU's products read them: packed once, used for every token and every step.

``y = x W^T + b`` of a few rows spends more than half of its time on reordering ``W`` for the vector units. Generation
multiplies the same matrices by a few rows hundreds of times, so that keeping them in oneDNN's blocked layout saves
time. On other devices and in other number formats nothing changes.
"""

from copy import copy
from typing import TypeVar

import torch
from torch import nn
from torch.nn.functional import linear
from torch.nn.utils.parametrize import is_parametrized

from universal_transformer.axes import Float, Tensor
from universal_transformer.torch_private import has_onednn, is_unchanged, pack, product

AnyModule = TypeVar("AnyModule", bound=nn.Module)

PACKED_FOR_ROWS = 16
"""Rows of a product that the layout of packed matrices is chosen for; it serves any number. Products of 32 tokens at
width 512: 347 ms instead of 617 (float32), 158 ms instead of 274 (bfloat16)."""


def packs(weight: Tensor) -> bool:
    """Whether a matrix like ``weight`` can be packed: float32 or bfloat16 on an x86 CPU whose torch has oneDNN."""
    return weight.device.type == "cpu" and has_onednn(weight.dtype)


class PackedLinear(nn.Linear):
    """``x W^T + b`` without gradient. ``weight`` and ``bias`` are shared; ``packed`` holds ``W`` as it was."""

    by_rows = True

    def __init__(self, weight: Float[Tensor, "out width"], bias: Float[Tensor, "out"] | None) -> None:
        nn.Module.__init__(self)  # not nn.Linear's own, which would draw a new matrix
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight, bias  # type: ignore[assignment]
        self.packed = pack(weight.detach(), rows=PACKED_FOR_ROWS)

    def forward(self, input: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows out"]:  # noqa: A002
        """The product; the ordinary one for another type than the packed one (autocast)."""
        if torch.is_autocast_enabled("cpu") or input.dtype != self.weight.dtype:
            return linear(input, self.weight, self.bias)
        return product(input, self.packed, self.bias)


def packed(module: AnyModule) -> AnyModule:
    """A copy of ``module`` that shares its parameters and whose matrices are packed as they are now.

    What a user has hooked, replaced or parametrized is not copied, but shared.
    """
    if is_parametrized(module) or not is_unchanged(module):
        return module
    result, parts = copy(module), dict[str, nn.Module | None]()
    for name, part in module._modules.items():
        if type(part) is nn.Linear and is_unchanged(part) and packs(part.weight):
            parts[name] = PackedLinear(part.weight, part.bias)
        else:
            parts[name] = None if part is None else packed(part)
    result._modules = parts
    return result
