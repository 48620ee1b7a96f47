"""The decoder of a model of tokens or of frames: its recurrence over depth, in one pass or position by position."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from universal_transformer.axes import Bool, Float, Int, Padding, Positions, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.memory import allocate_cache, reorder_cache
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.depth import recurrence
from universal_transformer.models.positions import default_positions
from universal_transformer.nn.attention import ProjectedSource
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.config import Exit
from universal_transformer.nn.exits import ExitUnit, Head
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.trace import NOTHING, Kept, Trace


@dataclass
class DecoderState:
    """State of generation between two tokens. ``lengths`` counts real tokens, ``padding`` the stored blanks, and
    ``tokens`` holds what a raster was fed.
    """

    cache: KeyValueCache
    source: list[ProjectedSource] | None
    lengths: Int[Tensor, "batch"]
    padding: Bool[Tensor, "batch capacity"]
    padded: bool = False
    depth: Depth | None = None
    trace: Trace | None = None
    tokens: Int[Tensor, "batch capacity"] | None = None

    def reorder(self, index: Int[Tensor, "rows"]) -> None:
        """Rows ``index`` in place of the present ones (beam search); the source moves along."""
        reorder_cache(self.cache, index)
        self.lengths, self.padding = self.lengths[index], self.padding[index]
        if self.tokens is not None:
            self.tokens = self.tokens[index]
        if self.source is not None:
            self.source = [
                ProjectedSource(key[index], value[index], None if mask is None else mask[index])
                for key, value, mask in self.source
            ]


class DecoderSide(nn.Module):
    """Inputs, refined over depth with attention to those before and to the source. ``embedding`` makes the inputs."""

    def __init__(self, config: ModelConfig, *, embedding: nn.Module, cross_attention: bool) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.dropout = nn.Dropout(config.step.dropout)
        self.recurrence = recurrence(config, decoder=True, cross_attention=cross_attention)

    @property
    def head(self) -> Head | None:
        """States to logits, for the exits that read what a model predicts."""
        return None

    def depth(self, *, max_steps: int | None = None, threshold: float | None = None, exit: Exit | None = None) -> Depth:
        """The depth of a call, as :meth:`Recurrence.depth`; each position exits by itself."""
        unit = None if exit is None else ExitUnit(exit, self.head)
        return self.recurrence.depth(max_steps=max_steps, threshold=threshold, exit=unit)

    def refine(
        self,
        inputs: States,
        *,
        padding: Padding | None,
        source: Sequence[ProjectedSource] | None,
        positions: Positions | None,
        depth: Depth | None,
        keep: Kept = NOTHING,
    ) -> tuple[States, Trace]:
        """All positions at once: ``inputs`` are shifted right; position ``i`` depends only on positions before it."""
        if positions is None:
            positions = default_positions(inputs.shape[1], padding=padding, device=inputs.device)
        refined: tuple[States, Trace] = self.recurrence(
            self.dropout(inputs),
            encoding=self.recurrence.coordinates.encode(positions, padding=padding),
            padding=padding,
            source=source,
            depth=depth,
            keep=keep,
        )
        return refined

    def start(
        self,
        *,
        batch: int,
        capacity: int,
        source: list[ProjectedSource] | None = None,
        depth: Depth | None = None,
    ) -> DecoderState:
        """Empty caches for ``batch`` sequences of up to ``capacity`` positions, the first one included."""
        if self.config.looks_ahead:
            raise UserError(
                'the decoder depends on later tokens (halting.scope="sequence" or shift_positions_by_step): '
                "it can score given targets but not generate"
            )
        like = next(self.embedding.parameters()).detach()
        depth = self.recurrence.depth() if depth is None else depth
        cache = allocate_cache(
            self.recurrence.num_slots(depth.max_steps),
            batch=batch,
            num_heads=self.config.sizes.num_heads,
            capacity=capacity,
            width=self.config.sizes.width,
            convolution=not getattr(self.recurrence.blocks[0].transition, "pointwise", False),
            like=like,
        )
        if source is not None:  # a few queries read these many times: one stretch of memory for each head
            source = [ProjectedSource(each.key.contiguous(), each.value.contiguous(), each.mask) for each in source]
        return DecoderState(
            cache=cache,
            source=source,
            lengths=torch.zeros(batch, dtype=torch.long, device=like.device),
            padding=torch.zeros(batch, capacity, dtype=torch.bool, device=like.device),
            depth=depth,
        )

    def refine_next(
        self, inputs: Float[Tensor, "batch new width"], state: DecoderState, *, padding: Padding | None = None
    ) -> Float[Tensor, "batch new width"]:
        """The states of new positions. The caches of ``state`` grow in place.

        ``padding`` marks new positions that hold nothing (ragged prompts, padded on the left; padding on the right
        gives the same result unless the transition is a convolution, which depends on neighbouring positions).
        """
        cache, new = state.cache, inputs.shape[1]
        cache.check(new)
        end = cache.length + new
        if padding is not None and bool(padding.any()):
            state.padding[:, cache.length : end] = padding
            state.padded = True
        if state.padded:
            blank = state.padding[:, cache.length : end]
            positions = (state.lengths.unsqueeze(1) + (~blank).long().cumsum(1) - 1).clamp(min=0)
            state.lengths = state.lengths + (~blank).sum(1)
        else:
            blank = None
            positions = torch.arange(cache.length, end, device=inputs.device).unsqueeze(0)
            state.lengths = state.lengths + new
        states: States
        states, state.trace = self.recurrence(
            inputs,
            encoding=self.recurrence.coordinates.encode(positions),
            padding=blank,
            source=state.source,
            cache=cache,
            cached_padding=state.padding[:, :end] if state.padded else None,
            depth=state.depth,
        )
        cache.length = end
        return states
