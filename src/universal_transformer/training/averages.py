"""Averages of weights: the mean of the last few validations, and a running mean over updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch

from universal_transformer.axes import Tensor
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.training.replica import divided_as, whole


class ExponentialMovingAverage:
    """The exponential moving average ``a ← d a + (1 - d) θ`` after update u, with ``a = θ`` at first.

    The decay is ``d = min(decay, (1 + u) / (10 + u))``.

    The smaller d of early updates soon forgets the initial weights (as TensorFlow's ExponentialMovingAverage does).
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {}
        """Empty with a decay of 0, and before the first update."""

    @torch.no_grad()
    def add(self, model: Pretrained, *, update: int) -> None:
        """Add the weights after an update, which counts from 1."""
        if not self.decay:
            return
        if not self.weights:
            self.weights = {name: tensor.detach().clone() for name, tensor in model.tensors().items()}
            return
        share = 1.0 - min(self.decay, (1 + update) / (10 + update))
        for name, tensor in model.tensors().items():
            self.weights[name].lerp_(tensor, share)

    def load(self, tensors: Mapping[str, Tensor], *, like: Pretrained) -> None:
        """Take the mean that a checkpoint holds, divided over processes as the weights are."""
        device = next(like.parameters()).device
        self.weights = {  # in the order of the model: that of a file differs between processes
            name: divided_as(tensor, tensors[name].to(device, copy=True))
            for name, tensor in like.tensors().items()
            if name in tensors
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the mean, whole."""
        return {name: whole(tensor) for name, tensor in self.weights.items()}


class ValidationAverage:
    """The mean of the weights at the last `count` validations (0 or 1: no average)."""

    def __init__(self, count: int) -> None:
        self._kept: deque[dict[str, Tensor]] = deque(maxlen=count if count > 1 else 0)

    def add(self, weights: dict[str, Tensor]) -> None:
        """Add the weights of one validation."""
        self._kept.append(weights)

    def average(self) -> dict[str, Tensor] | None:
        """Return ``1/k Σ w_i``, or None while there are fewer than two to average."""
        if len(self._kept) < 2:
            return None
        return {
            name: torch.stack([kept[name].double() for kept in self._kept]).mean(0).to(first.dtype)
            for name, first in self._kept[0].items()
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return all kept weights by name, oldest first."""
        return {f"{index}/{name}": t for index, kept in enumerate(self._kept) for name, t in kept.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Undo `tensors`."""
        by_index = by_validation(tensors)
        self._kept.extend(by_index[index] for index in sorted(by_index, key=int))


def by_validation(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return the weights of each validation in what `ValidationAverage.tensors` returns, by its number as text."""
    found: dict[str, dict[str, Tensor]] = {}
    for full_name, tensor in tensors.items():
        index, _, name = full_name.partition("/")
        found.setdefault(index, {})[name] = tensor
    return found
