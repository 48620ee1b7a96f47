"""The time and the memory of an update: real updates of the model of a run on real batches, which change no weight.

The learning rate is 0, so that all updates are those of the initial weights. A batch that would take too long is
measured with a part of its rows: time and memory of the forward and backward pass grow in proportion to them.

Memory is the largest that the process has had (on a GPU: that torch has allocated there). It includes what no formula
of the model knows: imported code, the data, kernels that were compiled for the shapes of a batch, gaps between tensors.
It is right in a process that has done nothing else.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from universal_transformer.data.batch import collate
from universal_transformer.data.example import Example
from universal_transformer.models.model import Model
from universal_transformer.nn.halting import ACT
from universal_transformer.training import optimizer as optimizers
from universal_transformer.training.halting_schedule import prepare_units
from universal_transformer.training.objective import objective
from universal_transformer.training.run_config import TrainingConfig

LONGEST = 2.0
"""Seconds of an update from which it is measured with fewer rows."""
PASSES = 3
"""All batches are timed up to so often, and the median of each counts: the first time includes compiling kernels."""
ENOUGH = 3.0
"""Seconds of updates after which no further pass begins."""
PROBE_ROWS = 4
"""Rows of the first update, which decides how many rows are measured."""
NEVER_HALTS = -30.0
"""Bias with which a position halts at the last step only."""


@dataclass(frozen=True)
class UpdateCost:
    """What one update costs."""

    seconds: float
    """The mean over batches."""
    memory: float
    """Largest memory of the process, in bytes, with the model, its gradients and Adam's state."""
    activations: float
    """The part of it that is free between two updates: activations, gradients, temporary tensors."""
    steps: float
    """Mean number of steps of a position; 0 for a model without depth."""


class MeasuredUpdates:
    """Updates of `model` on batches of `examples`, given as lists of their numbers."""

    def __init__(
        self, model: Model, examples: Sequence[Example], *, training: TrainingConfig, device: torch.device
    ) -> None:
        self.examples, self.training, self.device = examples, training, device
        self.model = model.to(device).train()
        prepare_units(model, training)
        self.optimizer = optimizers.build_optimizer(model, training)
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        self.steps: list[float] = []
        self.before = most_memory(device)

    def cost(self, batches: Sequence[list[int]], *, largest: Sequence[list[int]]) -> UpdateCost:
        """Return the mean time over `batches`, and the memory of the most expensive of `largest`."""
        self.steps.clear()
        share = self._share(batches[len(batches) // 2])
        passes: list[list[float]] = []
        while len(passes) < PASSES and sum(map(sum, passes)) < ENOUGH:
            passes.append([self._seconds(indices, share) for indices in batches])
        seconds = statistics.mean(statistics.median(times) for times in zip(*passes, strict=True))
        factor = 1.0
        for indices in largest:
            part = _part(indices, share)
            factor = max(factor, len(indices) / len(part))
            self._backward(part)
        activations = factor * (most_memory(self.device) - self.before)
        return UpdateCost(
            seconds=seconds + seconds_of(self._change, device=self.device),
            memory=self.before + activations,
            activations=activations,
            steps=statistics.mean(self.steps),
        )

    def never_halt(self) -> None:
        """Let every position take all steps from now on."""
        for module in self.model.modules():
            if isinstance(module, ACT):
                torch.nn.init.constant_(module.bias, NEVER_HALTS)
                torch.nn.init.zeros_(module.weight)

    def _share(self, indices: list[int]) -> float:
        """Return the part of the rows of a batch that is measured."""
        few = indices[:PROBE_ROWS]
        self._backward(few)
        self._change()  # allocates the optimizer's state
        return min(1.0, LONGEST * len(few) / (self._seconds(few, 1.0) * len(indices)))

    def _seconds(self, indices: list[int], share: float) -> float:
        """Return the time of a batch, from that of a part of its rows."""
        part = _part(indices, share)
        return seconds_of(lambda: self._backward(part), device=self.device) * len(indices) / len(part)

    def _backward(self, indices: list[int]) -> None:
        """The gradients of a batch, as an update computes them."""
        training = self.training
        batch = collate([self.examples[index] for index in indices], indices=indices).to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=training.precision == "bfloat16"):
            loss = objective(
                self.model,
                batch,
                label_smoothing=training.label_smoothing,
                ponder_weight=training.ponder_weight,
                step_loss="stop" if training.stage == "halting" else training.step_loss,
            )
        torch.autograd.backward(loss.total)
        self.steps.append(float(loss.mean_steps))

    def _change(self) -> None:
        """The rest of an update: the norm of the gradient, clipping, and the optimizer."""
        norm = float(optimizers.gradient_norm(self.model))
        optimizers.clip(self.model, norm=norm, limit=self.training.clip_norm)
        self.optimizer.step()


def _part(indices: list[int], share: float) -> list[int]:
    return indices[: max(1, round(share * len(indices)))]


def seconds_of(work: Callable[[], object], *, device: torch.device) -> float:
    """Time of one call, until a GPU has finished all its work."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda _: None
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def most_memory(device: torch.device) -> int:
    """Return the largest memory that this process has had so far; on a GPU, that torch has allocated there."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
