"""The sides that write: a decoder refined over depth, in one pass or position by position, and that of tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear, pad

from universal_transformer.axes import Bool, Float, Int, Padding, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.execution.packing import PackedLinear, packs
from universal_transformer.models.depth import recurrence
from universal_transformer.models.inputs import WRITTEN, TokenInput, check_ids, check_tokens
from universal_transformer.models.model import Call, EncodedSource
from universal_transformer.models.model_config import BaseConfig, ModelConfig
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.positions.numbering import default_positions, without_padding
from universal_transformer.nn.context import (
    NOTHING,
    Context,
    Depth,
    Kept,
    ProjectedSource,
    causal_mask,
)
from universal_transformer.nn.trace import Trace
from universal_transformer.rules.exits import Head


@dataclass
class DecoderState:
    """State of generation between two tokens. ``lengths`` counts real tokens, ``padding`` the stored blanks, and
    ``tokens`` holds what a raster was fed.
    """

    cache: KeyValueCache
    source: list[ProjectedSource] | None
    lengths: Int[Tensor, "batch"]
    padding: Bool[Tensor, "batch capacity"]
    depth: Depth
    padded: bool = False
    trace: Trace | None = None
    tokens: Int[Tensor, "batch capacity"] | None = None

    def reorder(self, index: Int[Tensor, "rows"]) -> None:
        """Rows ``index`` in place of the present ones (beam search); the source moves along."""
        self.cache.reorder(index)
        self.lengths, self.padding = self.lengths[index], self.padding[index]
        if self.tokens is not None:
            self.tokens = self.tokens[index]
        if self.source is not None:
            self.source = [
                ProjectedSource(key[index], value[index], None if mask is None else mask[index])
                for key, value, mask in self.source
            ]


class OutputSide(nn.Module):
    """What sides that write a target have in common."""

    reach: int | None = None
    """How many positions it can write; None: any number."""

    def __init__(self, config: BaseConfig) -> None:
        super().__init__()
        self.config: Any = config

    def check(self, labels: Tensor) -> None:
        check_tokens(labels, name="target")

    def limit(self, length: int, *, fed: int = 1, most: int | None = None) -> int:
        """New tokens after ``fed`` ones, for a source or prompt of ``length``: ``most`` (None: as the configuration
        says, at most to the end of a learned table of positions).

        UserError for a prompt or ``most`` beyond that table.
        """
        limit: int = self.config.generation.limit(length) if most is None else most
        if self.reach is None:
            return limit
        free = self.reach - fed + 1  # the last new token is not fed
        if free < 1 or (most is not None and most > free):
            asked = "" if most is None else f" and max_new_tokens={most}"
            remedy = f"at most {free} new tokens" if free > 0 else "shorten the prompt"
            raise UserError(
                f"a prompt of {fed} tokens{asked} does not fit the learned table of "
                f"coordinates.max_positions={self.reach}: {remedy}"
            )
        return min(limit, free)


class DecoderSide(OutputSide):
    """Inputs, refined over depth with attention to those before and to the source. ``embedding`` makes the inputs."""

    config: ModelConfig
    head: Head | None = None
    """States to logits, for the exits that read what a model predicts."""

    def __init__(self, config: ModelConfig, *, embedding: nn.Module, cross_attention: bool) -> None:
        super().__init__(config)
        self.embedding = embedding
        self.dropout = nn.Dropout(config.step.dropout)
        self.recurrence = recurrence(config, decoder=True, cross_attention=cross_attention)
        self.reach = self.recurrence.coordinates.position.reach

    def project(self, encoded: EncodedSource | None) -> list[ProjectedSource] | None:
        """Keys and values of a source for each block."""
        if encoded is None:
            return None
        rotary = None
        if self.config.source_attention.rotary_source:
            position: Any = self.recurrence.coordinates.position
            from_end = self.config.coordinates.from_end
            rotary = position.source_angles(encoded.positions, padding=encoded.padding, from_end=from_end)
        return self.recurrence.project_source(encoded.states, padding=encoded.padding, rotary=rotary)

    def context(self, length: int, call: Call, *, padding: Padding | None, encoded: EncodedSource | None) -> Context:
        """The context of all positions at once: position ``i`` depends only on positions before it."""
        device, positions = next(self.parameters()).device, call.positions[1]
        if positions is None:
            positions = default_positions(length, padding=padding, device=device)
        mask, causal = decoder_mask(length, stored=None, padding=padding, stored_padding=None, device=device)
        return Context(
            depth=call.depth.of(self.recurrence, head=self.head),
            encoding=self.recurrence.coordinates.position(positions, padding=padding),
            padding=padding,
            mask=mask,
            causal=causal,
            source=self.project(encoded),
            record=call.keep.record(),
            keep_states=call.keep.states,
        )

    def start(self, encoded: EncodedSource | None, call: Call, *, batch: int, capacity: int) -> DecoderState:
        """Empty caches for ``batch`` sequences of up to ``capacity`` positions, the first one included."""
        if self.config.looks_ahead:
            raise UserError("the decoder reads more than its cache holds: it can score given targets but not generate")
        like = next(self.parameters()).detach()
        depth = call.depth.of(self.recurrence, head=self.head)
        block = self.recurrence.blocks[0]
        pointwise = all(getattr(each.transition, "pointwise", False) for each in self.recurrence.layers)
        cache = KeyValueCache(
            self.recurrence.num_slots(depth.max_steps),
            batch=batch,
            num_heads=block.attention.key_heads,
            capacity=capacity,
            width=block.attention.key_width,
            convolution=0 if pointwise else self.config.sizes.width,
            like=like,
        )
        source = self.project(encoded)
        if source is not None:  # a few queries read these many times: one stretch of memory for each head
            source = [ProjectedSource(each.key.contiguous(), each.value.contiguous(), each.mask) for each in source]
        return DecoderState(
            cache=cache,
            source=source,
            lengths=torch.zeros(batch, dtype=torch.long, device=like.device),
            padding=torch.zeros(batch, capacity, dtype=torch.bool, device=like.device),
            depth=depth,
            trace=None if encoded is None else encoded.trace,
        )

    def refine_next(
        self,
        inputs: Float[Tensor, "batch new width"],
        state: DecoderState,
        *,
        padding: Padding | None = None,
        keep: Kept = NOTHING,
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
        hidden = state.padding[:, :end] if state.padded else None
        mask, causal = decoder_mask(
            new, stored=cache.length, padding=blank, stored_padding=hidden, device=inputs.device
        )
        context = Context(
            depth=state.depth,
            encoding=self.recurrence.coordinates.position(positions),
            padding=blank,
            mask=mask,
            causal=causal,
            source=state.source,
            cache=cache,
            stored_padding=hidden,
            record=keep.record(),
            keep_states=keep.states,
        )
        states: States
        states, state.trace = self.recurrence(inputs, context)
        cache.length = end
        return states


class TargetSide(DecoderSide):
    """Targets shifted right, embedded, refined over depth, mapped to logits (paper, section 2.1, equation 8)."""

    embedding: TokenInput

    def __init__(self, config: ModelConfig, source: nn.Module | None) -> None:
        embedding = WRITTEN[config.outputs.kind].of_targets(config, config.sizes.width, source=source)
        super().__init__(config, embedding=embedding, cross_attention=source is not None)
        size = embedding.weight.shape[0]
        self.output = None if config.outputs.tie_output else nn.Linear(config.sizes.width, size, bias=False)
        self.bias = nn.Parameter(torch.zeros(size)) if config.outputs.output_bias else None
        self.packed_logits: PackedLinear | None = None

    @property
    def head(self) -> Head:  # type: ignore[override]  # an attribute would be a cycle of references
        return self.logits

    def logits(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows classes"]:
        """An affine map of states; its matrix is the embedding unless ``tie_output`` is off."""
        if self.packed_logits is not None:
            return self.packed_logits(states)
        return linear(states, self.matrix, self.bias)

    @property
    def matrix(self) -> Float[Tensor, "classes width"]:
        return self.embedding.weight if self.output is None else self.output.weight

    def pack_logits(self) -> None:
        """Pack the matrix of the logits as it is now (:mod:`~universal_transformer.execution.packing`)."""
        if packs(self.matrix):
            self.packed_logits = PackedLinear(self.matrix, self.bias)

    def length(self, labels: Int[Tensor, "batch target"]) -> int:
        return labels.shape[1]

    def forward(self, labels: Int[Tensor, "batch target"], encoded: EncodedSource | None, call: Call) -> ModelOutput:
        """Teacher forcing: position ``i`` predicts ``labels[:, i]`` from the labels to its left."""
        check_ids(labels, size=self.matrix.shape[0])  # the last label is no input
        padding = self.padding(labels)
        ids = shifted_right(labels, start_id=self.config.start_id, padding=padding)
        inputs = self.dropout(self.embedding(ids))
        states, trace = self.recurrence(inputs, self.context(labels.shape[1], call, padding=padding, encoded=encoded))
        every = None if trace.states is None else self.logits(trace.states)
        return ModelOutput(self.logits(states), None if encoded is None else encoded.trace, trace, step_logits=every)

    def padding(self, labels: Int[Tensor, "batch target"]) -> Padding | None:
        return without_padding(labels == self.config.vocabulary.padding_id)

    def advance(
        self, tokens: Int[Tensor, "batch new"], state: DecoderState, *, padding: Padding | None = None
    ) -> Float[Tensor, "batch new classes"]:
        """Logits after each of the new tokens. The caches of ``state`` grow in place; ``padding``: `refine_next`."""
        check_tokens(tokens, name="tokens")
        if len(tokens) != len(state.padding):
            raise UserError(f"tokens of {len(tokens)} rows: the state is of {len(state.padding)}")
        return self.logits(self.refine_next(self.embedding.feed(tokens, state), state, padding=padding))


def decoder_mask(
    new: int,
    *,
    stored: int | None,
    padding: Padding | None,
    stored_padding: Bool[Tensor, "batch stored"] | None,
    device: torch.device,
) -> tuple[Bool[Tensor, "..."] | None, bool]:
    """The mask of ``new`` positions of a decoder, or None and whether the plain causal mask is meant.

    ``stored``: how many positions a cache holds before them, None without one; ``stored_padding`` covers both.
    """
    if stored is None and padding is not None:
        left = padding[:, 0].any()  # later positions would attend to it
        if torch.compiler.is_exporting():
            stored_padding = padding & left
        elif bool(left):
            stored_padding = padding
    before = stored or 0
    if stored_padding is None and (before == 0 or new == 1):
        return None, new > 1
    index = torch.arange(before, before + new, device=device).unsqueeze(0)
    return causal_mask(index, num_keys=before + new, padding=stored_padding), False


def shifted_right(
    labels: Int[Tensor, "batch target"], *, start_id: int, padding: Padding | None
) -> Int[Tensor, "batch target"]:
    """The token before each label: the start token before the first one, also where ``padding`` is on the left."""
    ids = pad(labels, (1, -1), value=start_id)
    return ids if padding is None else ids.scatter(1, padding.long().argmin(dim=1, keepdim=True), start_id)
