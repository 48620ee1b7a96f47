"""Whether a batch fits into memory, found out before it is made."""

from __future__ import annotations

from collections.abc import Sequence

from universal_transformer.data.sampler import BucketSampler
from universal_transformer.errors import UserError
from universal_transformer.evaluation.scoring import device_of
from universal_transformer.models.build import Model
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.roles import AnyLanguageModel
from universal_transformer.execution.memory import check_memory


def position_bytes(model: Model) -> int:
    """What a position takes at least while it is worked on without gradients: a few states, what the transition opens,
    and the logits of a language model, which every position has.
    """
    config = model.config
    if not isinstance(config, ModelConfig):
        return 0
    numbers = 6 * config.width + config.filter_width
    if isinstance(model, AnyLanguageModel):
        numbers += 2 * config.vocabulary_size
    return numbers * next(model.parameters()).element_size()


def check_batches(model: Model, sizes: Sequence[int], *, batch_tokens: int) -> BucketSampler:
    """Batches of examples of these ``sizes`` for ``model``.

    Raises UserError for ``batch_tokens`` below 1, and when the largest batch cannot fit into memory.
    """
    sampler = BucketSampler(sizes, batch_tokens, seed=0, shuffle=False)
    shapes = [(len(batch), max(sizes[index] for index in batch)) for batch in sampler.epoch(0)]
    rows, length = max(shapes, key=lambda shape: shape[0] * shape[1], default=(0, 0))
    check_memory(
        rows * length * position_bytes(model),
        device=device_of(model),
        what=f"batch_tokens={batch_tokens}: a batch of {rows:,} rows of {length:,} positions",
        fix="choose fewer" if rows > 1 else "shorten the example",
    )
    return sampler


def check_batch_tokens(batch_tokens: int) -> None:
    """UserError unless a batch may hold something."""
    if batch_tokens < 1:
        raise UserError(f"batch_tokens={batch_tokens}: at least 1 position")
