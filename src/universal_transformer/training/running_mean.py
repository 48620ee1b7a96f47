"""A running mean of the weights over updates (exponential moving average)."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from universal_transformer.axes import Tensor
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.training.replica import divided_as, whole


class RunningMean:
    """``a ← d a + (1 - d) θ`` after update u, with ``d = min(decay, (1 + u) / (10 + u))`` and ``a = θ`` at first.

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
