"""Batches of examples, and what evaluation and prediction read from the output of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from universal_transformer.axes import Bool, Float, Tensor
from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import Example
from universal_transformer.data.sampler import batches_by_size
from universal_transformer.decoding.generation import steps_of
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.memory import check_memory
from universal_transformer.models.model import Model
from universal_transformer.nn.context import NOTHING, Kept


def finite(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch classes"]:
    """Return `logits`; UserError where they are not finite."""
    if not bool(torch.isfinite(logits).all()):
        raise UserError("the model's logits are not finite: its weights or its training went wrong")
    return logits


def batch_of(model: Model, examples: Sequence[Example]) -> Batch:
    return collate(examples, indices=range(len(examples))).to(device_of(model))


def inputs_of(batch: Batch, *, model: Model) -> list[Tensor]:
    """The tensors of a batch that a model is called with: of source and target those that it has a side for."""
    sides = ((model.source, batch.source), (model.target, batch.target))
    return [given for side, given in sides if side is not None and given is not None]


@dataclass(frozen=True)
class Called:
    """A model that was called with a batch of examples (`inputs_of`)."""

    model: Model
    batch: Batch
    output: Any

    @classmethod
    def with_examples(
        cls, model: Model, examples: Sequence[Example], options: DecodingOptions, *, keep: Kept = NOTHING
    ) -> Called:
        batch = batch_of(model, examples)
        return cls(model, batch, options.run(model, *inputs_of(batch, model=model), keep=keep))

    @property
    def logits(self) -> Float[Tensor, "batch *positions classes"]:
        """The logits of the output; UserError where they are not finite."""
        return finite(self.output.logits)

    @property
    def source_steps(self) -> list[list[float]]:
        """N of the positions of each source that have a token, a fact of at least one word, or a frame."""
        assert self.batch.source is not None
        return steps_of(self.output.encoder, real=~self.model.source.input.padding(self.batch.source))

    @property
    def real_target(self) -> Bool[Tensor, "batch target"]:
        return self.batch.target != self.batch.padding_id

    @property
    def target_steps(self) -> list[list[float]]:
        """N of the positions of each target that are no padding."""
        return steps_of(self.output.decoder, real=self.real_target)


def position_bytes(model: Model) -> int:
    """Return the memory that one position takes at least, without gradients: that of six states, of the hidden layer of
    the transition, and of the logits of a language model.
    """
    config = model.config
    if not config.max_steps:
        return 0
    numbers = 6 * config.sizes.width + config.sizes.filter_width
    if not config.reads:
        numbers += 2 * config.vocabulary.written
    return numbers * next(model.parameters()).element_size()


def check_batches(model: Model, sizes: Sequence[int], *, batch_tokens: int) -> list[list[int]]:
    """Return the batches of examples of these `sizes`, by index; UserError when the largest cannot fit into memory."""
    batches = batches_by_size(sizes, batch_tokens=batch_tokens)
    shapes = [(len(batch), max(sizes[index] for index in batch)) for batch in batches]
    rows, length = max(shapes, key=lambda shape: shape[0] * shape[1], default=(0, 0))
    check_memory(
        rows * length * position_bytes(model),
        device=device_of(model),
        what=f"batch_tokens={batch_tokens}: a batch of {rows:,} rows of {length:,} positions",
        fix="choose fewer" if rows > 1 else "shorten the example",
    )
    return batches


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device


def pick_device(name: str, *, field: str) -> torch.device:
    """Return the device that `field` asks for: "cpu", "cuda", or "auto" for a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{field}: {name!r}, but torch finds no GPU; allowed here: auto, cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def emulates_bfloat16(device: torch.device) -> bool:
    """Return whether `device` is a CPU that is known to have no instructions for products of bfloat16 numbers."""
    # older versions of torch do not say
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    found = [capabilities[name] for name in ("amx_bf16", "avx512_bf16", "bf16") if name in capabilities]
    return device.type == "cpu" and bool(found) and not any(found)
