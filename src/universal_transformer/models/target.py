"""The target side of a model: embedding, decoder recurrence and logits, in one pass or token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear, pad

from universal_transformer.axes import Bool, Float, Int, Padding, Positions, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.memory import allocate_cache, reorder_cache
from universal_transformer.execution.packing import PackedLinear, packs
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.depth import recurrence
from universal_transformer.models.inputs import RasterInput, TokenInput, check_ids
from universal_transformer.models.positions import default_positions, without_padding
from universal_transformer.nn.attention import ProjectedSource
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.config import Exit
from universal_transformer.nn.exits import ExitUnit
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


class TargetSide(nn.Module):
    """Targets shifted right, embedded, refined over depth, mapped to logits (paper, section 2.1, equation 8)."""

    def __init__(self, config: ModelConfig, *, embedding: TokenInput, cross_attention: bool) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        self.dropout = nn.Dropout(config.step.dropout)
        self.recurrence = recurrence(config, decoder=True, cross_attention=cross_attention)
        size = embedding.weight.shape[0]
        self.output = None if config.outputs.tie_output else nn.Linear(config.sizes.width, size, bias=False)
        self.bias = nn.Parameter(torch.zeros(size)) if config.outputs.output_bias else None
        self.packed_logits: PackedLinear | None = None

    def depth(self, *, max_steps: int | None = None, threshold: float | None = None, exit: Exit | None = None) -> Depth:
        """The depth of a call, as :meth:`Recurrence.depth`; each position exits by itself."""
        unit = None if exit is None else ExitUnit(exit, self.logits)
        return self.recurrence.depth(max_steps=max_steps, threshold=threshold, exit=unit)

    def logits(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows classes"]:
        """An affine map of states; its matrix is the embedding unless ``tie_output`` is off."""
        if self.packed_logits is not None:
            return self.packed_logits(states)
        return linear(states, self.matrix, self.bias)

    @property
    def matrix(self) -> Float[Tensor, "classes width"]:
        """The output matrix."""
        return self.embedding.weight if self.output is None else self.output.weight

    def pack_logits(self) -> None:
        """Pack the matrix of the logits as it is now (:mod:`~universal_transformer.execution.packing`)."""
        if packs(self.matrix):
            self.packed_logits = PackedLinear(self.matrix, self.bias)

    def forward(
        self,
        labels: Int[Tensor, "batch target"],
        *,
        source: Sequence[ProjectedSource] | None = None,
        positions: Positions | None = None,
        depth: Depth | None = None,
        keep: Kept = NOTHING,
    ) -> tuple[Float[Tensor, "batch target classes"], Trace]:
        """Teacher forcing: position ``i`` predicts ``labels[:, i]`` from the labels to its left.

        ``depth``: from :meth:`depth`, by default as trained.
        """
        check_ids(labels, size=self.matrix.shape[0])  # the last label is no input
        ids = pad(labels, (1, -1), value=self.config.start_id)  # shifted right
        padding = None
        if not self.config.tensor2tensor.ponder_padding:
            padding = without_padding(labels == self.config.vocabulary.padding_id)
        if padding is not None:  # on the left, too: the start token is before the first label
            ids = ids.scatter(1, padding.long().argmin(dim=1, keepdim=True), self.config.start_id)
        if positions is None:
            positions = default_positions(labels.shape[1], padding=padding, device=labels.device)
        states, trace = self.recurrence(
            self.dropout(self._embed(ids, labels)),
            encoding=self.recurrence.coordinates.encode(positions, padding=padding),
            padding=padding,
            source=source,
            depth=depth,
            keep=keep,
        )
        return self.logits(states), trace

    def _embed(self, ids: Int[Tensor, "batch target"], labels: Int[Tensor, "batch target"]) -> States:
        """Return the embeddings of the labels shifted right, and for a raster those of the pixels above."""
        if not isinstance(self.embedding, RasterInput):
            return self.embedding(ids)
        columns = self.config.outputs.columns
        above = pad(labels, (columns, 0), value=self.config.vocabulary.padding_id)[:, : labels.shape[1]]
        return self.embedding(ids) + self.embedding.embed_above(above)

    def _embed_next(self, tokens: Int[Tensor, "batch new"], state: DecoderState) -> States:
        """Return the embeddings of new tokens, and for a raster those of the pixels above the next ones."""
        if not isinstance(self.embedding, RasterInput) or state.tokens is None:
            return self.embedding(tokens)
        begin, new = state.cache.length, tokens.shape[1]
        state.tokens[:, begin : begin + new] = tokens
        place = torch.arange(begin, begin + new, device=tokens.device) - self.config.outputs.columns + 1
        above = state.tokens[:, place.clamp(min=0)].masked_fill(place < 1, self.config.vocabulary.padding_id)
        return self.embedding(tokens) + self.embedding.embed_above(above)

    def start(
        self,
        *,
        batch: int,
        capacity: int,
        source: list[ProjectedSource] | None = None,
        depth: Depth | None = None,
    ) -> DecoderState:
        """Empty caches for ``batch`` sequences of up to ``capacity`` tokens, the start token included."""
        if self.config.looks_ahead:
            raise UserError(
                'the decoder depends on later tokens (halting.scope="sequence" or shift_positions_by_step): '
                "it can score given targets but not generate"
            )
        weight = self.embedding.weight
        depth = self.recurrence.depth() if depth is None else depth
        cache = allocate_cache(
            self.recurrence.num_slots(depth.max_steps),
            batch=batch,
            num_heads=self.config.sizes.num_heads,
            capacity=capacity,
            width=self.config.sizes.width,
            convolution=not getattr(self.recurrence.blocks[0].transition, "pointwise", False),
            like=weight.detach(),
        )
        if source is not None:  # a few queries read these many times: one stretch of memory for each head
            source = [ProjectedSource(each.key.contiguous(), each.value.contiguous(), each.mask) for each in source]
        raster = isinstance(self.embedding, RasterInput)
        pixels = torch.zeros(batch, capacity, dtype=torch.long, device=weight.device) if raster else None
        return DecoderState(
            cache=cache,
            source=source,
            lengths=torch.zeros(batch, dtype=torch.long, device=weight.device),
            padding=torch.zeros(batch, capacity, dtype=torch.bool, device=weight.device),
            depth=depth,
            tokens=pixels,
        )

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: DecoderState, *, padding: Padding | None = None
    ) -> Float[Tensor, "batch new classes"]:
        """Logits after each of the new tokens. The caches of ``state`` grow in place.

        ``padding`` marks new positions that hold no token (ragged prompts, padded on the left; padding on the right
        gives the same result unless the transition is a convolution, which depends on neighbouring positions).
        """
        cache, new = state.cache, tokens.shape[1]
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
            positions = torch.arange(cache.length, end, device=tokens.device).unsqueeze(0)
            state.lengths = state.lengths + new
        states, state.trace = self.recurrence(
            self._embed_next(tokens, state),
            encoding=self.recurrence.coordinates.encode(positions),
            padding=blank,
            source=state.source,
            cache=cache,
            cached_padding=state.padding[:, :end] if state.padded else None,
            depth=state.depth,
        )
        cache.length = end
        return self.logits(states)
