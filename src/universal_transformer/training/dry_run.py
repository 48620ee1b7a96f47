"""``ut train RECIPE --dry-run``: what a run would cost, estimated before anything is trained.

==================== =============================================================================================
figure               how it is found
==================== =============================================================================================
parameters           the model is built on torch's "meta" device, where tensors have a shape and no memory
operations (FLOPs)   torch counts those of a forward pass of this model; an update costs 3 times as many, because the
                     backward pass costs twice the forward pass. A halting model is counted at its cap on steps, so
                     that its figures are upper bounds
memory, time         a few real updates of the initial model are made on real batches (`training.update_cost`), and
                     dropped. Memory is that of this process then, plus the copies of weights that a run keeps and
                     those of a checkpoint that is being written. A halting model is measured as it halts at the
                     start, and again with all steps
halting              for each side that halts: whether halted positions are left out of the computation, or why not
                     (`execution.policy.row_obstacle`)
==================== =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
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
from universal_transformer.models.model import Call, Model
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.recurrence import depth_loop
from universal_transformer.registry import build
from universal_transformer.training.data_lines import data_lines
from universal_transformer.training.randomness import repeatable
from universal_transformer.training.update_cost import MeasuredUpdates, UpdateCost
from universal_transformer.typed import replaced

if TYPE_CHECKING:
    from universal_transformer.kinds import AnyModelConfig
    from universal_transformer.tasks.task import Task
    from universal_transformer.training.run_config import RunConfig

EXAMPLES = 4096
"""Batches are made of a sample of this many training examples."""
COUNTED_BATCHES = 6
"""Operations are counted for this many batches, spread evenly over those of the sample."""
FURTHER_KERNELS = 80e6
"""Memory that a CPU's kernels for further shapes take where positions are left out: each update has other numbers of
rows. Measured over 320 updates with the limit of `cli.keep_few_kernels`."""


@dataclass(frozen=True)
class SampledBatch:
    """A batch of the sample: the numbers of its examples, and the positions of each row, padding included."""

    indices: list[int]
    source: int
    target: int


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
    copies: float
    """Bytes of weights that a run keeps besides those of the model."""
    saved: float
    """Bytes of a checkpoint while it is written."""
    cached: float
    """Bytes of keys and values while a target as long as the longest of the sample is decoded."""
    halting: tuple[str, ...]
    """What happens to the halted positions of each side that halts."""

    def lines(self) -> list[str]:
        """Return one line a figure."""
        task, most = self.task, "at most " if self.config.model.halts or self._by_length else ""
        counts = {"train": len(task.train), "validation": len(task.validation)}
        counts |= {name: len(examples) for name, examples in task.test.items() if name != "validation"}
        return [
            f"recipe      {self.config.recipe}",
            f"examples    {', '.join(f'{name} {count:,}' for name, count in counts.items())}",
            f"parameters  {self.parameters:,}",
            f"FLOPs       {most}{self.flops / 1e9:,.2f} GFLOP an update (forward and backward)",
            f"memory      {self._memory()}",
            *([f"decoding    {_size(self.cached)} of keys and values a sequence"] if self.cached else []),
            f"time        {self._time()}",
            *(f"halting     {text}" for text in self.halting),
            *data_lines(task),
            *(f"note        {text}" for text in task.notes),
        ]

    @property
    def _by_length(self) -> bool:
        return self.config.model.by_length(decoder=False)

    def _memory(self) -> str:
        start, full = (_size(self._bytes(cost)) for cost in (self.start, self.full))
        more = f"; up to {full} with all steps" if self.config.model.halts else ""
        return f"about {start} while training{more} (from updates of the initial model)"

    def _bytes(self, cost: UpdateCost) -> float:
        """The memory of an update, or that of a checkpoint being written between two updates, if that is more."""
        kernels = FURTHER_KERNELS if self.config.model.halts else 0.0
        return cost.memory + self.copies + kernels + max(0.0, self.saved - cost.activations)

    def _time(self) -> str:
        training, seconds = self.config.training, self.start.seconds
        rate = f"{1000 * seconds:,.0f} ms an update"
        if self.config.model.halts:
            most = "all" if self._by_length else self.config.model.max_steps
            rate += f" of {self.start.steps:.1f} steps, as at the start ({1000 * self.full.seconds:,.0f} ms of {most})"
        epoch = f"{_duration(seconds * self.updates_per_epoch)} for {self.updates_per_epoch:,} updates an epoch"
        ends = [60 * training.minutes] if training.minutes else []
        ends += [seconds * training.max_updates] if training.max_updates else []
        updates = min(ends) / seconds
        return f"{rate}, {epoch}; the run ends after {_duration(min(ends))} or {updates:,.0f} updates"


def estimate(config: RunConfig, task: Task) -> Estimate:
    """Count operations on a model without memory, and measure a few updates of a real one."""
    training, model = config.training, build_on_meta(task.configure(config.model))
    batches, updates = sampled_batches(task.train, batch_tokens=training.batch_tokens)
    by_length = sorted(batches, key=lambda batch: batch.source + batch.target)
    counted = [by_length[len(batches) * (2 * i + 1) // (2 * COUNTED_BATCHES)].indices for i in range(COUNTED_BATCHES)]
    collated = [collate([task.train[index] for index in indices], indices=indices) for indices in counted]
    start, full = measured_updates(config, task, counted=counted, largest=largest_batches(batches))
    weights, kept = 4.0 * model.num_parameters(), training.average_checkpoints or 0
    return Estimate(
        config=config,
        task=task,
        parameters=model.num_parameters(),
        updates_per_epoch=updates,
        flops=3 * mean(forward_flops(model, batch) for batch in collated),
        start=start,
        full=full,
        copies=weights * (1 + kept),  # the best, and those to average
        saved=weights * (4 + kept + max(2, kept)),  # each file as bytes, and the largest of them twice
        cached=cache_bytes(model, length=max(batch.target for batch in batches)),
        halting=tuple(halted_positions(model)),
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


def halted_positions(model: Model) -> list[str]:
    """Say for each side of the model that halts whether halted positions are left out, or why not."""
    found = []
    for name, side in (("encoder", model.source), ("decoder", model.target)):
        recurrence = getattr(side, "recurrence", None)
        if recurrence is not None and recurrence.halting.stops and recurrence.halting.decides:
            reason = row_obstacle(recurrence, recurrence.halting)
            if recurrence.loop is depth_loop:
                reason = 'execution.halting_execution="masked"'
            kept = "are left out where this saves time" if reason is None else f"are computed: {reason}"
            found.append(f"{name}: halted positions {kept}")
    return found


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
    """Build a model whose tensors have shapes and take no memory."""
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
    if isinstance(model.config, ModelConfig) and model.config.halts:
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


def _size(count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
