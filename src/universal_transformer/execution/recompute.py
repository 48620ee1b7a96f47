"""Tensors that the backward pass computes again instead of keeping them, where that costs little.

Autograd keeps the inputs of every operation. In a depth step most of these follow from one another by a sum, a choice
of rows or a LayerNorm: ``new = LayerNorm(x)``, ``b = new + π``, ``X = b + τ_t``. Inside :meth:`Recompute.hooks` a
registered tensor is kept as the arguments it was computed from, and computed again when the backward pass needs it. No
matrix product is repeated.
"""

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import layer_norm

from universal_transformer.axes import Float, Tensor

RECENT = 3
"""How many recomputed tensors are held, because the next operation often needs the same one."""


class Recomputation(NamedTuple):
    """How a tensor is computed: a function and its arguments, which may be recomputations themselves."""

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    versions: tuple[int, ...] = ()
    """Version of each tensor among the arguments: how often it had been changed in place."""

    @property
    def holds(self) -> bool:
        """Whether none of them has been changed since."""
        tensors = (part for part in self.arguments if isinstance(part, Tensor))
        return all(part._version == version for part, version in zip(tensors, self.versions, strict=True))


class Registered(NamedTuple):
    """A tensor that can be computed again. Its address identifies it, as long as the tensor exists."""

    result: weakref.ref[Tensor]
    shape: torch.Size
    recomputation: Recomputation


def compute(recompute: "Recompute | None", function: Callable[..., Tensor], *arguments: object) -> Tensor:
    """``function(*arguments)``, registered with ``recompute`` if there is one."""
    result = function(*arguments)
    if recompute is not None:
        recompute.register(result, function, *arguments)
    return result


def normalise(
    norm: nn.LayerNorm, states: Float[Tensor, "*rows width"], recompute: "Recompute | None"
) -> Float[Tensor, "*rows width"]:
    """``norm(states)``, registered with the present parameters, so that those of a functional call are kept with it."""
    return compute(recompute, layer_norm, states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class Recompute:
    """The tensors that can be computed again, and how.

    The backward pass raises RuntimeError if an argument has been changed in place, as autograd itself does.
    """

    def __init__(self, *, device: torch.device) -> None:
        kind = device.type
        self.kind, self.narrow = kind, torch.is_autocast_enabled(kind)
        self.dtype = torch.get_autocast_dtype(kind) if self.narrow else None
        self.registered: dict[int, Registered] = {}
        self.recent: deque[tuple[Recomputation, Tensor]] = deque(maxlen=RECENT)

    def hooks(self) -> AbstractContextManager[object]:
        """Inside, registered tensors are not kept for the backward pass."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def register(self, result: Tensor, function: Callable[..., Tensor], *arguments: object) -> None:
        """``result`` is ``function(*arguments)``, bit for bit, whenever it is computed."""
        kept = tuple(self._argument(part) for part in arguments)
        recomputation = Recomputation(function, kept, tuple(part._version for part in kept if isinstance(part, Tensor)))
        self.registered[result.data_ptr()] = Registered(weakref.ref(result), result.shape, recomputation)

    def forget(self) -> None:
        """Register nothing any more. What was kept can still be computed."""
        self.registered.clear()

    def _argument(self, part: object) -> object:
        if not isinstance(part, Tensor):
            return part
        packed = self._pack(part)
        return part.detach() if packed is part else packed

    def _pack(self, part: Tensor) -> Tensor | Recomputation:
        found = self.registered.get(part.data_ptr())
        if found is None or found.result() is None or not part.is_contiguous():
            return part
        if part.shape == found.shape:
            return found.recomputation
        whole = part.numel() == found.shape.numel()
        return Recomputation(torch.reshape, (found.recomputation, part.shape)) if whole else part

    def _unpack(self, packed: Tensor | Recomputation) -> Tensor:
        if not isinstance(packed, Recomputation):
            return packed
        with torch.no_grad():
            if not self.narrow:
                return self._compute(packed)
            with torch.autocast(self.kind, dtype=self.dtype):
                return self._compute(packed)

    def _compute(self, recomputation: Recomputation) -> Tensor:
        for known, result in self.recent:
            if known is recomputation:
                return result
        if not recomputation.holds:
            raise RuntimeError("a tensor that the backward pass needs was changed in place after the forward pass")
        result = recomputation.function(
            *(self._compute(part) if isinstance(part, Recomputation) else part for part in recomputation.arguments)
        )
        self.recent.append((recomputation, result))
        return result
