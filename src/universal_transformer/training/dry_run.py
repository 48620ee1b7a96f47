"""``ut train RECIPE --dry-run``: what a run would cost, estimated before anything is trained.

==================== =============================================================================================
figure               how it is found
==================== =============================================================================================
parameters           the model is built on torch's "meta" device, where tensors have a shape and no memory
operations (FLOPs)   torch counts those of a forward pass of this model; an update costs 3 times as many, because the
                     backward pass costs twice the forward pass. A halting model is counted at its cap on steps, so
                     that its figures are upper bounds
time                 a few real updates of the initial model are made on real batches, with a learning rate of 0. Of a
                     batch that would take too long a part of the rows is measured: time and memory of the forward and
                     backward pass grow in proportion to them. A halting model is measured as it halts at the start,
                     and again with all steps
memory               the largest that this process has had by then (on a GPU: that torch has allocated there), with
                     imported code, data, compiled kernels and gaps between tensors, plus the copies of weights that a
                     run keeps and those of a checkpoint that is being written. It is right in a process that has done
                     nothing else
halting              for each side that halts: whether halted positions are left out of the computation, or why not
                     (`execution.policy.row_obstacle`)
==================== =============================================================================================
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example, sizes, target_size
from universal_transformer.data.sampler import batches_by_size
from universal_transformer.evaluation.tensors import inputs_of, pick_device
from universal_transformer.execution.policy import row_obstacle
from universal_transformer.files import counted
from universal_transformer.memory import show_bytes
from universal_transformer.models.model import Call, Model
from universal_transformer.nn.halting import ACT
from universal_transformer.nn.recurrence import depth_loop
from universal_transformer.registry import build
from universal_transformer.training import optimizer as optimizers
from universal_transformer.training.data_lines import data_lines
from universal_transformer.training.halting_schedule import prepare_units
from universal_transformer.training.objective import objective
from universal_transformer.training.randomness import repeatable
from universal_transformer.training.warm_start import starting_weights
from universal_transformer.typed import replaced

if TYPE_CHECKING:
    from universal_transformer.tasks.task import Task
    from universal_transformer.training.run_config import AnyModelConfig, RunConfig, TrainingConfig

EXAMPLES = 4096
"""Batches are made of a sample of this many training examples."""
COUNTED_BATCHES = 6
"""Operations are counted for this many batches, spread evenly over those of the sample."""
FURTHER_KERNELS = 80e6
"""Memory that a CPU's kernels for further shapes take where positions are left out: each update has other numbers of
rows. Measured over 320 updates with the limit of `cli.keep_few_kernels`."""
LONGEST = 2.0
"""Seconds of an update from which it is measured with fewer rows."""
PASSES = 3
"""All batches are timed up to so often, and the median of each counts: the first time includes compiling kernels."""
ENOUGH = 3.0
"""Seconds of updates after which no further pass begins."""
PROBE_ROWS = 4
"""Rows of the first update, which decides how many rows are measured."""
MEASURED_STEPS = 32
"""Steps of the deepest model that is built. All figures grow with the steps in proportion, so that those of a deeper
model follow from those of a half and of the whole of these steps."""
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

    def deeper(self, half: UpdateCost, *, times: float) -> UpdateCost:
        """The cost of a model that has more steps, by `times` as many as `half` has less."""
        memory = _further(half.memory, self.memory, times)
        return UpdateCost(
            seconds=_further(half.seconds, self.seconds, times),
            memory=memory,
            activations=half.activations + memory - half.memory,
            steps=_further(half.steps, self.steps, times),
        )


@dataclass(frozen=True)
class Estimate:
    """What a run would cost."""

    config: RunConfig
    task: Task
    parameters: int
    updates_per_epoch: int
    flops: float
    """Operations of one update, the mean over batches."""
    start: UpdateCost
    """An update of the initial model."""
    full: UpdateCost
    """The same with all steps: another one where the model halts."""
    cached: float
    """Bytes of keys and values while a target as long as the longest of the sample is decoded."""
    halting: tuple[str, ...]
    """What happens to the halted positions of each side that halts."""

    def lines(self) -> list[str]:
        model = self.config.model
        most = "at most " if model.halts or self._by_length or self.config.training.depth == "random" else ""
        start, full = (show_bytes(round(self._bytes(cost))) for cost in (self.start, self.full))
        more = f"; up to {full} with all steps" if model.halts else ""
        return [
            f"recipe      {self.config.recipe}",
            f"parameters  {self.parameters:,}",
            f"FLOPs       {most}{self.flops / 1e9:,.2f} GFLOP an update (forward and backward)",
            f"memory      about {start} while training{more} (from updates of the initial model)",
            *([f"decoding    {show_bytes(round(self.cached))} of keys and values a sequence"] if self.cached else []),
            f"time        {self._time()}",
            *(f"halting     {text}" for text in self.halting),
            *data_lines(self.task, self.config.model),
            *(f"note        {text}" for text in self.task.notes),
        ]

    @property
    def _by_length(self) -> bool:
        return self.config.model.by_length(decoder=False)

    def _bytes(self, cost: UpdateCost) -> float:
        """The memory of an update, or that of a checkpoint being written between two updates, if that is more."""
        weights, kept = 4.0 * self.parameters, self.config.training.average_checkpoints or 0
        kept += self.config.training.ema_decay is not None
        copies = weights * (1 + kept)  # the best, those to average, and a running mean
        saved = weights * (4 + kept + max(2, kept))  # each file as bytes, and the largest of them twice
        kernels = FURTHER_KERNELS if self.config.model.halts else 0.0
        return cost.memory + copies + kernels + max(0.0, saved - cost.activations)

    def _time(self) -> str:
        training, seconds = self.config.training, self.start.seconds
        rate = f"{1000 * seconds:,.0f} ms an update"
        if self.config.model.halts:
            most = "all" if self._by_length else self.config.model.max_steps
            rate += f" of {self.start.steps:.1f} steps, as at the start ({1000 * self.full.seconds:,.0f} ms of {most})"
        elif training.depth == "random":
            rate += f" of all {self.config.model.max_steps} steps, the most that are drawn"
        epoch = (
            f"{_duration(seconds * self.updates_per_epoch)} for {counted(self.updates_per_epoch, 'update')} an epoch"
        )
        ends = [60 * training.minutes] if training.minutes else []
        ends += [seconds * training.max_updates] if training.max_updates else []
        updates = min(ends) / seconds
        return f"{rate}, {epoch}; the run ends after {_duration(min(ends))} or {counted(updates, 'update')}"


def estimate(config: RunConfig, task: Task) -> Estimate:
    """Count operations on a model without memory, and measure a few updates of a real one. UserError, as a run raises
    it, if nothing of what it starts from fits.
    """
    if config.warm_start:
        starting_weights(build_on_meta(task.configure(config.model)), task.codec, config)
    most = 0 if config.model.by_length(decoder=False) else config.model.max_steps
    if most <= MEASURED_STEPS:
        return measured(config, task)
    half, whole = (measured(_shallower(config, steps), task) for steps in (MEASURED_STEPS // 2, MEASURED_STEPS))
    times = (most - MEASURED_STEPS) / (MEASURED_STEPS // 2)
    return replace(
        whole,
        config=config,
        parameters=round(_further(half.parameters, whole.parameters, times)),
        flops=_further(half.flops, whole.flops, times),
        start=whole.start.deeper(half.start, times=times),
        full=whole.full.deeper(half.full, times=times),
        cached=_further(half.cached, whole.cached, times),
    )


def _shallower(config: RunConfig, steps: int) -> RunConfig:
    """Return a configuration whose deeper side makes so many steps, and the other as many in proportion."""
    model = config.model
    sides = (max(1, model.max_steps_of(decoder=decoder) * steps // model.max_steps) for decoder in (False, True))
    encoder, decoder = sides
    changes = {"max_steps": encoder, "decoder_max_steps": None if decoder == encoder else decoder, "min_steps": 1}
    return replaced(config, {f"model.depth.{name}": value for name, value in changes.items()})


def _further(half: float, whole: float, times: float) -> float:
    return whole + times * max(0.0, whole - half)


def measured(config: RunConfig, task: Task) -> Estimate:
    """Return the estimate of a model that is built."""
    model = build_on_meta(task.configure(config.model))
    batches, updates = sampled_batches(task.train, batch_tokens=config.training.batch_tokens)
    by_length = sorted(batches, key=lambda batch: batch.source + batch.target)
    counted = [by_length[len(batches) * (2 * i + 1) // (2 * COUNTED_BATCHES)].indices for i in range(COUNTED_BATCHES)]
    collated = [collate([task.train[index] for index in indices], indices=indices) for indices in counted]
    start, full = measured_updates(config, task, counted=counted, largest=largest_batches(batches))
    return Estimate(
        config=config,
        task=task,
        parameters=model.num_parameters(),
        updates_per_epoch=updates,
        flops=3 * statistics.mean(forward_flops(model, batch) for batch in collated),
        start=start,
        full=full,
        cached=cache_bytes(model, length=max(batch.target for batch in batches)),
        halting=tuple(halted_positions(model.train(config.training.stage == "all"), config.training)),
    )


def measured_updates(
    config: RunConfig, task: Task, *, counted: Sequence[list[int]], largest: Sequence[list[int]]
) -> tuple[UpdateCost, UpdateCost]:
    """Measure updates of the initial model, as it halts and with all steps; nothing of them is kept."""
    device = pick_device(config.training.device, field="training.device")
    torch.manual_seed(config.training.seed)
    with repeatable(threads=config.training.threads, device=device):
        model = build(task.configure(config.model))
        updates = MeasuredUpdates(model, task.train, training=config.training, device=device)
        start = updates.cost(counted, largest=largest)
        if not config.model.halts:
            return start, start
        updates.never_halt()
        return start, updates.cost(counted, largest=largest)


class MeasuredUpdates:
    """Updates of `model` on batches of `examples`, given as lists of their numbers."""

    def __init__(
        self, model: Model, examples: Sequence[Example], *, training: TrainingConfig, device: torch.device
    ) -> None:
        self.examples, self.training, self.device = examples, training, device
        self.model = model.to(device).train()
        prepare_units(model, training)
        self.optimizers = optimizers.build_optimizers(model, training)
        optimizers.set_rate(self.optimizers, 0.0)
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
        self.model.zero_grad(set_to_none=True)
        for first in range(min(self.training.accumulate, len(indices))):
            self._pass(indices[first :: self.training.accumulate])

    def _pass(self, indices: list[int]) -> None:
        training = self.training
        batch = collate([self.examples[index] for index in indices], indices=indices).to(self.device)
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
        optimizers.step(self.optimizers)


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


def halted_positions(model: Model, training: TrainingConfig) -> list[str]:
    """Say for each side of the model that halts whether halted positions are left out in training, or why not."""
    found, all_steps = [], training.step_loss != "last" or training.stage == "halting"
    for name, side in (("encoder", model.source), ("decoder", model.target)):
        recurrence = getattr(side, "recurrence", None)
        if recurrence is not None and recurrence.halting.stops and recurrence.halting.decides:
            reason = row_obstacle(recurrence, recurrence.halting)
            if recurrence.loop is depth_loop:
                reason = 'execution.halting_execution="masked"'
            elif all_steps:
                reason = "the loss reads the states of all positions after each step"
            kept = "are left out where this saves time" if reason is None else f"are computed: {reason}"
            found.append(f"{name}: halted positions {kept}")
    return found


@dataclass(frozen=True)
class SampledBatch:
    """A batch of the sample: the numbers of its examples, and the positions of each row, padding included."""

    indices: list[int]
    source: int
    target: int


def sampled_batches(examples: Sequence[Example], *, batch_tokens: int) -> tuple[list[SampledBatch], int]:
    """Return the batches that a sample of the examples makes, and the updates of an epoch."""
    numbers = range(0, len(examples), max(1, len(examples) // EXAMPLES))
    sample = [examples[index] for index in numbers]
    batches = batches_by_size(sizes(sample), batch_tokens=batch_tokens, seed=(0, 0))
    found = [
        SampledBatch(
            indices=[numbers[index] for index in batch],
            source=max(len(sample[index].source) for index in batch),
            target=max(target_size(sample[index]) for index in batch),
        )
        for batch in batches
    ]
    return found, max(1, round(len(batches) * len(examples) / len(sample)))


def largest_batches(batches: Sequence[SampledBatch]) -> list[list[int]]:
    """Return the batches that need most memory: of most positions, targets, and pairs of positions."""
    measures: list[Callable[[SampledBatch], int]] = [
        lambda batch: len(batch.indices) * (batch.source + batch.target),
        lambda batch: len(batch.indices) * batch.target,
        lambda batch: len(batch.indices) * (batch.source + batch.target) ** 2,
    ]
    return [max(batches, key=measure).indices for measure in measures]


def build_on_meta(config: AnyModelConfig) -> Model:
    with torch.device("meta"):
        return build(config).eval()


class _NoValues(TorchFunctionMode):
    """Answers False or 0 where a model asks for the value of a tensor without values: no padding, position 0."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in (torch.Tensor.__bool__, torch.Tensor.__int__) and args[0].is_meta:
            return False if func is torch.Tensor.__bool__ else 0
        return func(*args, **(kwargs or {}))


def forward_flops(model: Model, batch: Batch) -> int:
    """Return the operations of one forward pass of a batch; a multiplication and an addition are counted as two.

    `model` is on the meta device (`build_on_meta`). Only matrix products and convolutions are counted.
    """
    if model.config.halts:
        model = build_on_meta(replaced(model.config, {"halting.side": "none"}))
    # torch counts the attention that forms its scores, which is the kernel MATH
    with (
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
        sdpa_kernel(SDPBackend.MATH),
        _NoValues(),
    ):
        model(*inputs_of(batch.to("meta"), model=model))
    return counter.get_total_flops()


def cache_bytes(model: Model, *, length: int) -> float:
    """Return how many bytes of keys and values (and inputs of a convolution) a decoder keeps of `length` tokens, or
    frames.

    A position is kept for each block applied, whether or not it has halted by then.
    """
    if model.target is None or not model.config.max_steps:
        return 0.0
    if model.writes == "frames":
        length = -(-length // model.target.stride)
    cache = model.target.start(None, Call(), batch=1, capacity=length).cache
    return float(sum(part.nbytes for part in vars(cache).values() if isinstance(part, torch.Tensor)))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
