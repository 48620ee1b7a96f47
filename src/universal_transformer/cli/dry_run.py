"""``ut train RECIPE --dry-run``: what a run would cost, before anything is trained.

Floating-point operations of one forward pass, a multiplication and an addition counted as two, with width d,
filter width f, T steps of b blocks, S source and N target positions (padding included) of each of B rows:

=============================== ================================================================
self-attention, one position    8 d² (queries, keys, values, output) + 4 L d (scores, sums over L)
attention to the source         4 d² + 4 S d a target position; keys and values 4 d² a source position,
                                once for all steps
transition, one position        4 d f; separable convolutions: 4 d f + 6 d + 10 f
output                          2 d × classes a target position (of a classifier: a row)
=============================== ================================================================

Backward costs twice the forward pass, so an update costs 3 × the sum. A halting model may stop earlier: its
figures are upper bounds. Time is these operations over the speed of a matrix product of the model's shape,
measured here and now, times a factor for all that is no matrix product (`OVERHEAD`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from universal_transformer.baselines import cost
from universal_transformer.models.config import ModelConfig

if TYPE_CHECKING:
    from universal_transformer.data.example import Example
    from universal_transformer.kinds import AnyModelConfig
    from universal_transformer.training.config import RunConfig

SAMPLE = 4096
"""Training examples that stand for all."""
OVERHEAD = 1.8
"""Time of an update over the time of its matrix products: 1.5 to 2.1 on one CPU core, at width 128 to 256."""
PROCESS_BYTES = 400e6
"""What Python and torch take before there is a model."""


@dataclass(frozen=True)
class Shape:
    """A batch: rows, source positions and target positions of each, padding included."""

    rows: int
    source: int
    target: int


@dataclass(frozen=True)
class Estimate:
    """What a run would cost."""

    config: RunConfig
    examples: dict[str, int]
    parameters: int
    updates_per_epoch: int
    flops: float
    """Of one update, mean over batches."""
    memory: float
    """Bytes while training, at the largest batch of the sample."""
    cached: float
    """Bytes of keys and values for a target as long as the longest of the sample, while it is decoded."""
    seconds: float
    """Of one update."""
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return one line a figure."""
        most = "at most " if self.config.model.halts else ""
        return [
            f"recipe      {self.config.recipe}",
            f"examples    {', '.join(f'{name} {count:,}' for name, count in self.examples.items())}",
            f"parameters  {self.parameters:,}",
            f"FLOPs       {most}{self.flops / 1e9:,.2f} GFLOP an update (forward and backward)",
            f"memory      about {self.memory / 1e9:.1f} GB while training (an estimate)",
            *([f"decoding    {_size(self.cached)} of keys and values a sequence"] if self.cached else []),
            f"time        {most}{self._time()} (an estimate, from a matrix product timed on this machine)",
            *(f"note        {text}" for text in self.notes),
        ]

    def _time(self) -> str:
        training = self.config.training
        rate = f"{1000 * self.seconds:,.0f} ms an update"
        epoch = f"{_duration(self.seconds * self.updates_per_epoch)} for {self.updates_per_epoch:,} updates an epoch"
        ends = [60 * training.minutes] if training.minutes else []
        ends += [self.seconds * training.max_updates] if training.max_updates else []
        updates = min(ends) / self.seconds
        return f"{rate}, {epoch}; the run ends after {_duration(min(ends))} or {updates:,.0f} updates"


def estimate(config: RunConfig) -> Estimate:
    """Load the data, build the model without weights, and estimate."""
    from universal_transformer.cli.run_folder import load_data

    task = load_data(config)
    model = task.configure(config.model)
    shapes, updates = _batches(task.train, batch_tokens=config.training.batch_tokens)
    flops = sum(forward_flops(model, shape) for shape in shapes) / len(shapes) * 3
    parameters = count_parameters(model)
    copies = 5 + config.training.average_checkpoints  # weights, gradient, Adam's two, the best
    weights = 4.0 * parameters * copies
    return Estimate(
        config=config,
        examples={
            "train": len(task.train),
            "validation": len(task.validation),
            **{name: len(examples) for name, examples in task.test.items() if name != "validation"},
        },
        parameters=parameters,
        updates_per_epoch=updates,
        flops=flops,
        memory=PROCESS_BYTES + weights + max(activation_bytes(model, shape) for shape in shapes),
        cached=cache_bytes(model, length=max(shape.target for shape in shapes)),
        seconds=flops / _speed(config, model) * OVERHEAD,
        notes=task.notes,
    )


def _batches(examples: Sequence[Example], *, batch_tokens: int) -> tuple[list[Shape], int]:
    """Return the shapes of the batches that a sample of the examples makes, and the updates of an epoch."""
    from universal_transformer.data.example import sizes
    from universal_transformer.data.sampler import BucketSampler

    stride = max(1, len(examples) // SAMPLE)
    sample = [examples[index] for index in range(0, len(examples), stride)]
    batches = BucketSampler(sizes(sample), batch_tokens=batch_tokens, seed=0, shuffle=True).epoch(0)
    shapes = [
        Shape(
            rows=len(batch),
            source=max(len(sample[index].source) for index in batch),
            target=max(_target_length(sample[index]) for index in batch),
        )
        for batch in batches
    ]
    return shapes, max(1, round(len(batches) * len(examples) / len(sample)))


def _target_length(example: Example) -> int:
    return len(example.target) if isinstance(example.target, tuple) else 1


def forward_flops(model: AnyModelConfig, shape: Shape) -> float:
    """Return the operations of one forward pass of a batch, by the table above (baselines: `baselines.cost`)."""
    if not isinstance(model, ModelConfig):
        return cost.forward_flops(model, rows=shape.rows, source=shape.source, target=shape.target)
    source, target = shape.rows * shape.source, shape.rows * shape.target
    d, applications = model.sizes.width, _applications(model)
    if model.architecture == "classifier":
        encoder = source * applications * _block_flops(model, length=shape.source)
        return encoder + shape.rows * 2.0 * d * model.vocabulary.num_classes
    decoder = target * applications * _block_flops(model, length=shape.target)
    output = target * 2.0 * d * (model.vocabulary.target_size or model.vocabulary.size)
    if model.architecture == "language_model":
        return decoder + output
    encoder = source * applications * _block_flops(model, length=shape.source)
    cross = target * applications * (4.0 * d * d + 4.0 * shape.source * d)
    return encoder + decoder + cross + source * _different_blocks(model) * 4.0 * d * d + output


def _applications(model: ModelConfig) -> int:
    """How often a block is applied: T steps of b blocks, and the plain layers."""
    plain = model.tensor2tensor.plain_layers_before + model.tensor2tensor.plain_layers_after
    return model.max_steps * model.step.blocks + plain


def _different_blocks(model: ModelConfig) -> int:
    plain = model.tensor2tensor.plain_layers_before + model.tensor2tensor.plain_layers_after
    return model.step.blocks * (1 if model.step.tied else model.max_steps) + plain


def _block_flops(model: ModelConfig, *, length: int) -> float:
    """Self-attention and transition of one position among `length`."""
    d, f = model.sizes.width, model.sizes.filter_width
    transition = 4.0 * d * f
    if model.transition.kind == "separable_convolution":
        transition += 6.0 * d + 10.0 * f
    return 8.0 * d * d + 4.0 * length * d + transition


def activation_bytes(model: AnyModelConfig, shape: Shape) -> float:
    """Return about how many bytes a forward pass keeps for the backward pass, in 32-bit floats.

    Of each position and block: some 16 states of the width (projections, residuals, norms, dropout), 2 of the
    filter width; of each target position: the logits, their softmax and their gradient. With activation checkpointing:
    one state of each position and step (two where outputs are interpolated), and one step and the plain layers whole.
    """
    if not isinstance(model, ModelConfig):
        return cost.activation_bytes(model, rows=shape.rows, source=shape.source, target=shape.target)
    source, target = shape.rows * shape.source, shape.rows * shape.target
    if model.architecture == "classifier":
        positions, outputs = source, shape.rows * model.vocabulary.num_classes
    else:
        positions = source + target
        outputs = target * (model.vocabulary.target_size or model.vocabulary.size)
    per_block = 16.0 * model.sizes.width + 2.0 * model.sizes.filter_width
    kept = _applications(model) * per_block
    if model.execution.activation_checkpointing:
        whole = _applications(model) - (model.max_steps - 1) * model.step.blocks
        states = 2.0 if model.halts and model.halting.output == "interpolate" else 1.0
        kept = model.max_steps * states * model.sizes.width + whole * per_block
    return 4.0 * (positions * kept + 3.0 * outputs)


def cache_bytes(model: AnyModelConfig, *, length: int) -> float:
    """Return how many bytes a decoder keeps of a sequence of `length` tokens, in 32-bit floats: of each position and
    block applied, its key and its value (and the input of a convolution), whether or not it has halted by then.
    """
    from universal_transformer.nn.cache import cache_elements

    if not isinstance(model, ModelConfig) or model.architecture == "classifier":
        return 0.0
    convolution = model.transition.kind == "separable_convolution"
    slots = _applications(model)
    return 4.0 * cache_elements(
        slots, batch=1, capacity=length, width=model.sizes.width, convolution=convolution
    )


def count_parameters(model: AnyModelConfig) -> int:
    """Return the number of weights, from a model whose tensors take no memory."""
    import torch

    from universal_transformer.registry import build

    with torch.device("meta"):
        built = build(model)
    return sum(parameter.numel() for parameter in built.parameters())


def _speed(config: RunConfig, model: AnyModelConfig) -> float:
    """Return operations a second of a matrix product of the transition's shape: the best of many short ones."""
    import torch

    from universal_transformer.cli.run_folder import pick_device

    device = pick_device(config.training.device)
    positions = min(config.training.batch_tokens, 1024)
    inner, outer = (
        (model.sizes.width, model.sizes.filter_width)
        if isinstance(model, ModelConfig)
        else cost.product_shape(model)
    )
    states = torch.randn(positions, inner, device=device)
    weight = torch.randn(inner, outer, device=device)
    product = 2.0 * positions * inner * outer
    threads = torch.get_num_threads()
    best, repeats, ends = 0.0, 0, time.perf_counter() + 0.3
    try:
        torch.set_num_threads(config.training.threads or threads)
        while repeats < 20 or time.perf_counter() < ends:
            began = time.perf_counter()
            float((states @ weight)[0, 0])  # reading a number waits for a GPU to be done
            best = max(best, product / (time.perf_counter() - began))
            repeats += 1
    finally:
        torch.set_num_threads(threads)
    return best


def _size(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
