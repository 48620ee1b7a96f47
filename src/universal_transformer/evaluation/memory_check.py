"""Batches of a model, and a check that the largest one fits into memory before it is made."""

from __future__ import annotations

from collections.abc import Sequence

from universal_transformer.data.sampler import batches_by_size
from universal_transformer.evaluation.tensors import device_of
from universal_transformer.memory import check_memory
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import ModelConfig


def position_bytes(model: Model) -> int:
    """Return a lower bound of the memory of one position without gradients.

    It counts six states, the hidden layer of the transition, and for a language model the logits of every position.
    """
    config = model.config
    if not isinstance(config, ModelConfig):
        return 0
    numbers = 6 * config.sizes.width + config.sizes.filter_width
    if not config.reads:
        numbers += 2 * config.vocabulary.written
    return numbers * next(model.parameters()).element_size()


def check_batches(model: Model, sizes: Sequence[int], *, batch_tokens: int) -> list[list[int]]:
    """Return the batches of examples of these ``sizes``, by index.

    Raises UserError for ``batch_tokens`` below 1, and when the largest batch cannot fit into memory.
    """
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
