"""Examples to tensors: rows of different lengths, padded on the right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.data.example import NO_CLASS, PADDING, Example


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples as rows of tensors, int64 but for frames.

    `source` is [batch, source] for tokens, [batch, facts, words] for facts, None for a language model, and float32
    [batch, frame, feature] for frames, padded with NaN;
    `target` is [batch, target] for ids and classes of positions, [batch] for classes of examples, [batch, label] for
    labels (`PRESENT` or `ABSENT`), and float32 as well for frames; `indices` says which example each row is, and
    `weights` how much it, or each of its positions, counts, if not all count alike.
    """

    source: Int[Tensor, "batch source"] | Int[Tensor, "batch facts words"] | Float[Tensor, "batch frame feature"] | None
    target: Int[Tensor, "batch target"] | Int[Tensor, " batch"] | Float[Tensor, "batch target output"]
    indices: Int[Tensor, " batch"]
    padding_id: int = PADDING
    weights: Float[Tensor, " batch"] | Float[Tensor, "batch target"] | None = None

    def to(self, device: torch.device | str) -> Batch:
        source = None if self.source is None else self.source.to(device, non_blocking=True)
        target = self.target.to(device, non_blocking=True)
        weights = None if self.weights is None else self.weights.to(device, non_blocking=True)
        indices = self.indices.to(device, non_blocking=True)
        return replace(self, source=source, target=target, indices=indices, weights=weights)

    @property
    def ignored(self) -> int:
        """The value of a target that has no term in a loss: an unknown class of an example, else padding."""
        return NO_CLASS if self.target.ndim == 1 else self.padding_id

    @property
    def num_tokens(self) -> int:
        """Number of terms in a mean loss: targets that are not padding, or examples if each has one class."""
        if self.target.ndim == 1:
            return len(self.target)
        if self.target.is_floating_point():
            return int((~self.target.isnan().all(dim=-1)).sum())
        return int((self.target != self.padding_id).sum())


def collate(examples: Sequence[Example], *, indices: Sequence[int]) -> Batch:
    """Put `examples` (numbered `indices` in their set) into one batch.

    Ids are padded on the right with `Example.padding_id`, frames with NaN. All examples are of one kind: tokens, facts
    or frames, with ids or classes, and one id of padding.
    """
    assert examples, "a batch needs at least one example"
    assert len(examples) == len(indices)
    padding_id = examples[0].padding_id
    assert all(example.padding_id == padding_id for example in examples), "a batch has one id of padding"
    sources, targets = [example.source for example in examples], [example.target for example in examples]
    weights = [example.weight for example in examples]
    has_source = isinstance(sources[0], np.ndarray) or any(sources)
    return Batch(
        source=_padded(sources, padding_id=padding_id) if has_source else None,
        target=_padded(targets, padding_id=padding_id),
        indices=torch.tensor(indices, dtype=torch.int64),
        padding_id=padding_id,
        weights=None if set(weights) == {1.0} else _weights(weights),
    )


def _weights(weights: list[Any]) -> Tensor:
    if isinstance(weights[0], tuple):
        return pad_sequence(list(map(torch.tensor, weights)), batch_first=True)
    return torch.tensor(weights)


def _padded(sides: list[Any], *, padding_id: int) -> Tensor:
    if isinstance(sides[0], np.ndarray):
        return pad_sequence([torch.from_numpy(side) for side in sides], batch_first=True, padding_value=math.nan)
    if isinstance(sides[0], int):
        return torch.tensor(sides, dtype=torch.int64)
    longest = max(map(len, sides))
    if not any(side and isinstance(side[0], tuple) for side in sides):
        padded = np.full((len(sides), longest), padding_id, dtype=np.int64)
        for row, ids in enumerate(sides):
            padded[row, : len(ids)] = ids
        return torch.from_numpy(padded)
    num_words = max(len(fact) for story in sides for fact in story)
    padded = np.full((len(sides), longest, num_words), padding_id, dtype=np.int64)
    for row, story in enumerate(sides):
        padded[row, : len(story)] = [fact + (padding_id,) * (num_words - len(fact)) for fact in story]
    return torch.from_numpy(padded)
