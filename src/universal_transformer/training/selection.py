"""The weights that a run may end with: the last, the best on validation, and the mean of those that were validated."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch

from universal_transformer.axes import Tensor
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.training.replica import divided_as, whole
from universal_transformer.training.run_config import TrainingConfig

Choice = Literal["best", "last", "average"]


class WeightSelection:
    """The best weights so far, and those of the last validations, whose mean is a candidate.

    With a decay, what is validated and kept is the running mean ``a ← d a + (1 - d) θ`` after update u, with ``a = θ``
    at first and ``d = min(ema_decay, (1 + u) / (10 + u))``: the smaller d of early updates soon forgets the initial
    weights (as TensorFlow's ExponentialMovingAverage does). `torch.optim.swa_utils.AveragedModel` copies the whole
    module, which weights in shards refuse.
    """

    def __init__(self, training: TrainingConfig) -> None:
        self.decay = training.ema_decay
        self.best: dict[str, Tensor] = {}
        self.last: deque[dict[str, Tensor]] = deque(maxlen=training.average_checkpoints or 0)
        self.running: dict[str, Tensor] = {}
        """Empty without a decay, and before the first update."""

    @torch.no_grad()
    def add_update(self, model: Pretrained, *, update: int) -> None:
        """Add the weights after an update, which counts from 1, to the running mean."""
        if self.decay is None:
            return
        if not self.running:
            self.running = {name: tensor.detach().clone() for name, tensor in model.tensors().items()}
            return
        share = 1.0 - min(self.decay, (1 + update) / (10 + update))
        for name, tensor in model.tensors().items():
            self.running[name].lerp_(tensor, share)

    @contextmanager
    def validated(self, model: Pretrained) -> Iterator[None]:
        """Give `model` the weights that are validated, and its own ones back afterwards."""
        if not self.running:
            yield
            return
        tensors = model.tensors()
        own = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        try:
            _copy(self.running, tensors)
            yield
        finally:
            _copy(own, tensors)

    def add(self, weights: dict[str, Tensor]) -> None:
        self.last.append(weights)

    def average(self) -> dict[str, Tensor] | None:
        """Return ``1/k Σ w_i`` over the last validations, or None while there are fewer than two to average."""
        if len(self.last) < 2:
            return None
        return {
            name: torch.stack([weights[name].double() for weights in self.last]).mean(0).to(first.dtype)
            for name, first in self.last[0].items()
        }

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all weights by name, whole, as the parts of a checkpoint; of the last validations oldest first."""
        last = {f"{index}/{name}": t for index, weights in enumerate(self.last) for name, t in weights.items()}
        running = {name: whole(tensor) for name, tensor in self.running.items()}
        return {"best": self.best, "averaged": last, "ema": running}

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]], *, like: Pretrained) -> None:
        """Undo `tensors`; the running mean is divided over processes as the weights of `like` are."""
        self.best, device = dict(tensors["best"]), next(like.parameters()).device
        self.running = {  # in the order of the model: that of a file differs between processes
            name: divided_as(tensor, tensors["ema"][name].to(device, copy=True))
            for name, tensor in like.tensors().items()
            if name in tensors["ema"]
        }
        by_index: dict[int, dict[str, Tensor]] = {}
        for full_name, tensor in tensors["averaged"].items():
            index, _, name = full_name.partition("/")
            by_index.setdefault(int(index), {})[name] = tensor
        self.last.extend(by_index[index] for index in sorted(by_index))


def _copy(values: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        tensor.detach().copy_(values[name])


def copy_weights(model: Pretrained) -> dict[str, Tensor]:
    return {name: whole(tensor.detach()).to("cpu", copy=True) for name, tensor in model.tensors().items()}


def load_weights(model: Pretrained, tensors: Mapping[str, Tensor]) -> None:
    own = model.tensors()
    assert own.keys() == tensors.keys(), "weights of another model"
    for name, tensor in own.items():
        tensor.detach().copy_(divided_as(tensor, tensors[name]))
