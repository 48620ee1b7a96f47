"""Examples to tensors: rows of different lengths, padded on the right with id 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from universal_transformer.axes import Float, Int, Tensor
from universal_transformer.data.example import PADDING, Example


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples as rows of tensors, int64 but for frames.

    `source` is [batch, source] for tokens, [batch, facts, words] for facts, None for a language model, and float32
    [batch, frame, feature] for frames, padded with NaN;
    `target` is [batch, target] for ids and classes of positions, [batch] for classes of examples, and float32 as well
    for frames; `indices` says which example each row is.
    """

    source: Int[Tensor, "batch source"] | Int[Tensor, "batch facts words"] | Float[Tensor, "batch frame feature"] | None
    target: Int[Tensor, "batch target"] | Int[Tensor, " batch"] | Float[Tensor, "batch target output"]
    indices: Int[Tensor, " batch"]

    def to(self, device: torch.device | str) -> Batch:
        source = None if self.source is None else self.source.to(device, non_blocking=True)
        target = self.target.to(device, non_blocking=True)
        return Batch(source=source, target=target, indices=self.indices.to(device, non_blocking=True))

    @property
    def num_tokens(self) -> int:
        """Number of terms in a mean loss: targets that are not padding, or examples if each has one class."""
        if self.target.ndim == 1:
            return len(self.target)
        if self.target.is_floating_point():
            return int((~self.target.isnan().all(dim=-1)).sum())
        return int((self.target != PADDING).sum())


def collate(examples: Sequence[Example], *, indices: Sequence[int]) -> Batch:
    """Put `examples` (numbered `indices` in their set) into one batch, padded on the right with 0, frames with NaN.

    Raises ValueError for no examples, and for mixed kinds (tokens, facts and frames; ids and classes).
    """
    if not examples:
        raise ValueError("a batch needs at least one example, found none")
    if len(examples) != len(indices):
        raise ValueError(f"{len(examples)} examples, but {len(indices)} indices")
    return Batch(
        source=_pad_sources([example.source for example in examples]),
        target=_pad_targets([example.target for example in examples]),
        indices=torch.tensor(indices, dtype=torch.int64),
    )


def _pad_sources(sources: list) -> Tensor | None:
    if (frames := _pad_frames(sources, name="sources")) is not None:
        return frames
    facts = [bool(source) and isinstance(source[0], tuple) for source in sources]
    if any(facts):
        if not all(facts):
            raise ValueError("a batch holds either sources of tokens or sources of facts, found both")
        return _pad_facts(sources)
    if not any(sources):
        return None
    return _pad_rows(sources)


def _pad_frames(sides: list, *, name: str) -> Tensor | None:
    frames = [isinstance(side, np.ndarray) for side in sides]
    if not any(frames):
        return None
    if not all(frames):
        raise ValueError(f"a batch holds either {name} of frames or of ids, found both")
    return pad_sequence([torch.from_numpy(side) for side in sides], batch_first=True, padding_value=math.nan)


def _pad_targets(targets: list) -> Tensor:
    if (frames := _pad_frames(targets, name="targets")) is not None:
        return frames
    if all(isinstance(target, int) for target in targets):
        return torch.tensor(targets, dtype=torch.int64)
    if any(isinstance(target, int) for target in targets):
        raise ValueError("a batch holds either targets of ids or classes, found both")
    return _pad_rows(targets)


def _pad_rows(rows: list[tuple[int, ...]]) -> Int[Tensor, "batch position"]:
    padded = np.full((len(rows), max(map(len, rows))), PADDING, dtype=np.int64)
    for row, ids in enumerate(rows):
        padded[row, : len(ids)] = ids
    return torch.from_numpy(padded)


def _pad_facts(stories: list[tuple[tuple[int, ...], ...]]) -> Int[Tensor, "batch facts words"]:
    num_words = max(len(fact) for story in stories for fact in story)
    padded = np.full((len(stories), max(map(len, stories)), num_words), PADDING, dtype=np.int64)
    for row, story in enumerate(stories):
        padded[row, : len(story)] = [fact + (PADDING,) * (num_words - len(fact)) for fact in story]
    return torch.from_numpy(padded)
