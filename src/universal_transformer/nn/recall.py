"""Tensors that the way back computes again, where that costs next to nothing, rather than keeps.

Autograd keeps the inputs of every operation. In a depth step most of these follow from one another by a sum, a choice
of rows or a LayerNorm: ``new = LayerNorm(x)``, ``b = new + π``, ``X = b + τ_t``. Inside :meth:`Recall.around` whatever
was promised is kept as what it was made from, and made once more when it is asked for; no product is repeated.
"""

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks

from universal_transformer.axes import Tensor

RECENT = 3
"""How many made tensors are held for whoever asks for the same next."""


class Recipe(NamedTuple):
    """How a tensor is made: a function, and its arguments, themselves perhaps recipes."""

    function: Callable[..., Tensor]
    arguments: tuple[Any, ...]
    versions: tuple[int, ...] = ()
    """How often each tensor among the arguments had been changed in place."""

    @property
    def holds(self) -> bool:
        """Whether none of them was changed since."""
        tensors = (part for part in self.arguments if isinstance(part, Tensor))
        return all(part._version == version for part, version in zip(tensors, self.versions, strict=True))


class Promise(NamedTuple):
    """A tensor that can be made again. A place in memory says which, as long as the tensor lives."""

    made: weakref.ref[Tensor]
    shape: torch.Size
    recipe: Recipe


def make(recall: "Recall | None", function: Callable[..., Tensor], *arguments: object) -> Tensor:
    """``function(*arguments)``, promised to ``recall`` if there is one."""
    made = function(*arguments)
    if recall is not None:
        recall.promise(made, function, *arguments)
    return made


class Recall:
    """What can be computed again, and how.

    RuntimeError on the way back if what it is made from was changed in place, as autograd itself has it.
    """

    def __init__(self, *, device: torch.device) -> None:
        kind = device.type
        self.kind, self.narrow = kind, torch.is_autocast_enabled(kind)
        self.dtype = torch.get_autocast_dtype(kind) if self.narrow else None
        self.promises: dict[int, Promise] = {}
        self.recent: deque[tuple[Recipe, Tensor]] = deque(maxlen=RECENT)

    def around(self) -> AbstractContextManager[object]:
        """Inside, what is promised is not kept for the way back."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def promise(self, made: Tensor, function: Callable[..., Tensor], *arguments: object) -> None:
        """``made`` is ``function(*arguments)``, bit for bit, whenever it is asked for."""
        kept = tuple(self._argument(part) for part in arguments)
        recipe = Recipe(function, kept, tuple(part._version for part in kept if isinstance(part, Tensor)))
        self.promises[made.data_ptr()] = Promise(weakref.ref(made), made.shape, recipe)

    def forget(self) -> None:
        """Nothing more is promised. What was kept can still be made."""
        self.promises.clear()

    def _argument(self, part: object) -> object:
        if not isinstance(part, Tensor):
            return part
        packed = self._pack(part)
        return part.detach() if packed is part else packed

    def _pack(self, part: Tensor) -> Tensor | Recipe:
        found = self.promises.get(part.data_ptr())
        if found is None or found.made() is None or not part.is_contiguous():
            return part
        if part.shape == found.shape:
            return found.recipe
        whole = part.numel() == found.shape.numel()
        return Recipe(torch.reshape, (found.recipe, part.shape)) if whole else part

    def _unpack(self, packed: Tensor | Recipe) -> Tensor:
        if not isinstance(packed, Recipe):
            return packed
        with torch.no_grad():
            if not self.narrow:
                return self._make(packed)
            with torch.autocast(self.kind, dtype=self.dtype):
                return self._make(packed)

    def _make(self, recipe: Recipe) -> Tensor:
        for known, made in self.recent:
            if known is recipe:
                return made
        if not recipe.holds:
            raise RuntimeError("a tensor that the way back needs was changed in place after the forward pass")
        made = recipe.function(
            *(self._make(part) if isinstance(part, Recipe) else part for part in recipe.arguments)
        )
        self.recent.append((recipe, made))
        return made
