"""``ut train RECIPE --dry-run``: what a run would cost, estimated before anything is trained.

==================== =============================================================================================
figure               how it is found
==================== =============================================================================================
parameters           the model is built on torch's "meta" device, where tensors have a shape and no memory
operations (FLOPs)   torch counts those of a forward pass of this model; an update costs 3 times as many, because the
                     backward pass costs twice the forward pass. A halting model is counted at its cap on steps, so
                     that its figures are upper bounds
memory               parameters, gradients and optimizer state exactly; activations by `activation_bytes`
time                 operations over the speed of a matrix product of the model's shape, which is measured when the
                     command runs, times a factor for all other operations (`OVERHEAD`)
halting              for each side that halts: whether halted positions are left out of the computation, or why not
                     (`execution.policy.compaction_obstacle`)
==================== =============================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.data.example import Example, sizes
from universal_transformer.data.sampler import BucketSampler
from universal_transformer.execution.policy import compaction_obstacle
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.encoder_decoder import EncoderDecoder
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.registry import Model, build
from universal_transformer.typed import replaced

if TYPE_CHECKING:
    from universal_transformer.kinds import AnyModelConfig
    from universal_transformer.training.config import RunConfig

EXAMPLES = 4096
"""Batches are made of a sample of this many training examples."""
COUNTED_BATCHES = 6
"""Operations are counted for this many batches, spread evenly over those of the sample."""
OVERHEAD = 1.8
"""Time of an update over the time of its matrix products: 1.5 to 2.1 on one CPU core, at width 128 to 256."""
PROCESS_BYTES = 400e6
"""Memory that Python and torch take before there is a model."""


@dataclass(frozen=True)
class BatchShape:
    """Rows of a batch, and source and target positions of each row, padding included."""

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
    """Operations of one update, the mean over batches."""
    memory: float
    """Bytes while training, at the largest batch of the sample."""
    cached: float
    """Bytes of keys and values while a target as long as the longest of the sample is decoded."""
    seconds: float
    """Seconds of one update."""
    halting: tuple[str, ...]
    """What happens to the halted positions of each side that halts."""
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
            *(f"halting     {text}" for text in self.halting),
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
    """Load the data, build the model without memory for its tensors, and estimate."""
    from universal_transformer.cli.run_folder import load_data

    task = load_data(config)
    configured = task.configure(config.model)
    model = build_on_meta(configured)
    shapes, updates = _batches(task.train, batch_tokens=config.training.batch_tokens)
    by_length = sorted(shapes, key=lambda shape: shape.source + shape.target)
    counted = [by_length[len(shapes) * (2 * i + 1) // (2 * COUNTED_BATCHES)] for i in range(COUNTED_BATCHES)]
    flops = 3 * sum(forward_flops(model, shape) for shape in counted) / COUNTED_BATCHES
    parameters = model.num_parameters()
    copies = 5 + config.training.average_checkpoints  # weights, gradient, two of Adam, the best weights
    activations = max(activation_bytes(configured, shape) for shape in shapes)
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
        memory=PROCESS_BYTES + 4.0 * parameters * copies + activations,
        cached=cache_bytes(model, length=max(shape.target for shape in shapes)),
        seconds=flops / _speed(config, configured) * OVERHEAD,
        halting=tuple(halted_positions(model)),
        notes=task.notes,
    )


def halted_positions(model: Model) -> list[str]:
    """Say for each side of the model that halts whether halted positions are left out, or why not."""
    found = []
    for module in model.modules():
        if isinstance(module, Recurrence) and module.halting is not None:
            side = "decoder" if module.decoder else "encoder"
            reason = compaction_obstacle(module)
            if module.executor is None:
                reason = 'execution.halting_execution="masked"'
            kept = "are left out where this saves time" if reason is None else f"are computed: {reason}"
            found.append(f"{side}: halted positions {kept}")
    return found


def _batches(examples: Sequence[Example], *, batch_tokens: int) -> tuple[list[BatchShape], int]:
    """Return the shapes of the batches that a sample of the examples makes, and the updates of an epoch."""
    stride = max(1, len(examples) // EXAMPLES)
    sample = [examples[index] for index in range(0, len(examples), stride)]
    batches = BucketSampler(sizes(sample), batch_tokens=batch_tokens, seed=0, shuffle=True).epoch(0)
    shapes = [
        BatchShape(
            rows=len(batch),
            source=max(len(sample[index].source) for index in batch),
            target=max(_target_length(sample[index]) for index in batch),
        )
        for batch in batches
    ]
    return shapes, max(1, round(len(batches) * len(examples) / len(sample)))


def _target_length(example: Example) -> int:
    return len(example.target) if isinstance(example.target, tuple) else 1


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


def forward_flops(model: Model, shape: BatchShape) -> int:
    """Return the operations of one forward pass of a batch; a multiplication and an addition are counted as two.

    `model` is on the meta device (`build_on_meta`). Only matrix products and convolutions are counted.
    """
    config = model.config
    if isinstance(config, ModelConfig) and config.halts:
        model = build_on_meta(replaced(config, {"halting.side": "none"}))
    words = (config.vocabulary.max_fact_words,) if config.inputs.kind == "facts" else ()
    source = torch.zeros(shape.rows, shape.source, *words, dtype=torch.long, device="meta")
    target = torch.zeros(shape.rows, shape.target, dtype=torch.long, device="meta")
    inputs = {"encoder_decoder": (source, target), "language_model": (target,), "classifier": (source,)}
    # torch counts the attention that forms its scores, which is the kernel MATH
    with (
        FlopCounterMode(display=False) as counter,
        torch.no_grad(),
        sdpa_kernel(SDPBackend.MATH),
        _NoValues(),
    ):
        model(*inputs[config.architecture])
    return counter.get_total_flops()


def activation_bytes(config: AnyModelConfig, shape: BatchShape) -> float:
    """Return about how many bytes a forward pass keeps for the backward pass, in 32-bit floats.

    =============================== =============================================================================
    model                           what is kept
    =============================== =============================================================================
    Universal Transformer           for each position and block: 16 states of the width (projections, residuals,
                                    norms, dropout) and 2 of the filter width
    with activation checkpointing   for each position and step: one state (two where outputs are interpolated);
                                    one step and the plain layers whole
    LSTM                            for each position and layer: 8 states; the weights of attention
    Neural GPU                      for each unit and step: 10 images
    every model                     for each output: the logits, their softmax and their gradient
    =============================== =============================================================================
    """
    d = config.sizes.width if isinstance(config, ModelConfig) else config.width
    classes = config.vocabulary.target_size or config.vocabulary.size
    source, target = shape.source, shape.target
    if isinstance(config, NeuralGpuConfig):
        places = config.num_places(source)
        images = 10.0 * places * config.image_width * d * config.num_layers
        return 4.0 * shape.rows * places * (images + 3.0 * classes)
    if config.architecture == "classifier":
        positions, outputs = source, config.vocabulary.num_classes
    else:
        positions, outputs = source + target, target * classes
    if isinstance(config, LstmConfig):
        kept = 8.0 * d * config.num_layers * positions
        if config.architecture == "encoder_decoder":
            kept += target * (2.0 * source + 4.0 * d)
        return 4.0 * shape.rows * (kept + 3.0 * outputs)
    plain = config.tensor2tensor.plain_layers_before + config.tensor2tensor.plain_layers_after
    blocks = config.max_steps * config.step.blocks + plain
    per_block = 16.0 * d + 2.0 * config.sizes.filter_width
    kept = blocks * per_block
    if config.execution.activation_checkpointing:
        states = 2.0 if config.halts and config.halting.output == "interpolate" else 1.0
        kept = config.max_steps * states * d + (config.step.blocks + plain) * per_block
    return 4.0 * shape.rows * (positions * kept + 3.0 * outputs)


def cache_bytes(model: Model, *, length: int) -> float:
    """Return how many bytes of keys and values (and inputs of a convolution) a decoder keeps of `length` tokens.

    A position is kept for each block applied, whether or not it has halted by then.
    """
    if not isinstance(model, EncoderDecoder | LanguageModel):
        return 0.0
    cache = model.target.start(batch=1, capacity=length).cache
    return float(sum(part.nbytes for part in vars(cache).values() if isinstance(part, torch.Tensor)))


def _speed(config: RunConfig, model: AnyModelConfig) -> float:
    """Return operations a second of the model's largest matrix product: the best of many short ones."""
    from universal_transformer.evaluation.tensors import pick_device

    device = pick_device(config.training.device, field="training.device")
    positions = min(config.training.batch_tokens, 1024)
    match model:
        case ModelConfig():
            inner, outer = model.sizes.width, model.sizes.filter_width
        case LstmConfig():
            inner, outer = model.width, 4 * model.width
        case NeuralGpuConfig():
            inner, outer = model.kernel_size**2 * model.width, 2 * model.width
    states = torch.randn(positions, inner, device=device)
    weight = torch.randn(inner, outer, device=device)
    product = 2.0 * positions * inner * outer
    threads = torch.get_num_threads()
    best, repeats, ends = 0.0, 0, time.perf_counter() + 0.3
    try:
        torch.set_num_threads(config.training.threads or threads)
        while repeats < 20 or time.perf_counter() < ends:
            began = time.perf_counter()
            float((states @ weight)[0, 0])  # reading a number waits until a GPU has finished
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
