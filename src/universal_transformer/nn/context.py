"""What the positions of one call have in common: how deep it goes, where they stand, and what they may attend to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch

from universal_transformer.axes import Bool, Float, Int, Padding, Positions, Scalar, States, Tensor, Values, Vectors

AllHeads = Float[Tensor, "batch heads stored head"]
Number = int | Int[Tensor, "*rows"]
"""The number of a step, or of the application of a block, from 0: of all positions, or of each row."""
Angles = Float[Tensor, "2 rows #heads position half"]
"""Cosines and sines of rotary positions."""


class ProjectedSource(NamedTuple):
    """Keys and values of the encoder's output, projected once: they are the same at every step."""

    key: Float[Tensor, "batch heads source head"]
    value: Float[Tensor, "batch heads source head"]
    mask: Bool[Tensor, "batch 1 1 source"] | None


class PositionEncoding(NamedTuple):
    """The position part of the coordinates, computed once for all steps."""

    positions: Positions
    signal: Vectors | None = None  # π
    rotary: Angles | None = None


class Depth(NamedTuple):
    """How deep a call goes: at most ``max_steps``, and no position halts before ``min_steps``.

    ``rule`` says which positions stop, and ``threshold`` at which cumulative probability.
    """

    rule: Any  # a nn.halting.Rule
    max_steps: int
    min_steps: int = 1
    threshold: float | Scalar = 0.99


@runtime_checkable
class KeysAndValues(Protocol):
    """Holds keys and values of positions that are not in a call: those of earlier calls, or of other processes."""

    def append(
        self, key: Float[Tensor, "batch heads new head"], value: Float[Tensor, "batch heads new head"], *, slot: Any
    ) -> tuple[AllHeads, AllHeads]:
        """Take the keys and values of a block application; return those of all positions that it may attend to."""


@runtime_checkable
class Cache(KeysAndValues, Protocol):
    """Keys and values of ``length`` positions of earlier calls, and the inputs of a convolution."""

    length: int

    def extend(
        self, states: Float[Tensor, "batch new width"], *, reach: int, slot: Any
    ) -> Float[Tensor, "batch seen width"]:
        """Store new inputs of a convolution; return them after at most ``reach`` earlier ones."""


@runtime_checkable
class RowAttention(Protocol):
    """Computes the attention of states that are rows, those of running positions alone: see `execution/`."""

    def attend(self, attention: Any, states: Tensor, *, seen: Tensor | None, slot: Any) -> Tensor:
        """Self-attention of each row over its sequence."""

    def attend_source(self, attention: Any, states: Tensor, *, layer: int) -> Tensor:
        """Attention of each row to the source of its sequence."""


@runtime_checkable
class Sequences(Protocol):
    """Which states form a sequence, where they are not the positions of a padded batch."""

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the real positions of each sequence, for every row."""

    def apply(self, function: Callable[[States], Tensor], states: Tensor) -> Tensor:
        """``function`` of the states of each sequence ``[batch, position, width]``, for every row."""


class Kept(NamedTuple):
    """What a trace keeps on request, because it takes much memory: of attention all heads, or the mean over them."""

    attention: bool | Literal["mean"] = False
    states: bool = False

    def record(self) -> "AttentionRecord | None":
        return AttentionRecord(self.attention == "mean") if self.attention else None


NOTHING = Kept()
"""By default nothing is kept."""


@dataclass
class AttentionRecord:
    """Attention weights, one tensor ``[batch, heads, query, key]`` for each application of a block, in order, or their
    ``mean`` over heads: all heads then take memory during one application only.
    """

    mean: bool = False
    self_attention: list[Tensor] = field(default_factory=list)
    cross_attention: list[Tensor] = field(default_factory=list)

    def kept(self, weights: Float[Tensor, "batch heads query key"]) -> Float[Tensor, "batch kept query key"]:
        return weights.mean(1, keepdim=True) if self.mean else weights


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the positions of one call have in common: the same at every step.

    ``mask`` (True where a query may look) or ``causal`` (the plain causal mask) restricts self-attention. ``padding``
    covers the positions of this call, ``stored_padding`` those that ``cache`` holds as well. ``source``: one entry for
    each block. ``lengths``: the last step of each sequence, or of each row, where these differ (decision D15).
    ``others`` holds keys and values of positions that are not in this call; ``rows`` computes the attention of rows,
    which ``sequences`` groups. ``record`` receives attention weights. ``signals``: τ of all steps. ``attended``: A of
    the step before, of each block, where the transition is added to it (D5).
    """

    depth: Depth
    encoding: PositionEncoding
    padding: Padding | None = None
    mask: Bool[Tensor, "..."] | None = None
    causal: bool = False
    source: Sequence[ProjectedSource] | None = None
    cache: Cache | None = None
    others: KeysAndValues | None = None
    rows: RowAttention | None = None
    sequences: Sequences | None = None
    stored_padding: Bool[Tensor, "batch stored"] | None = None
    record: AttentionRecord | None = None
    keep_states: bool = False
    lengths: Int[Tensor, "batch"] | None = None
    signals: Float[Tensor, "step channels"] | None = None
    attended: dict[int, Vectors] | None = None

    @property
    def idle(self) -> Padding | None:
        """Positions that take no step."""
        return self.padding

    def is_last(self, step: int | Tensor) -> bool | Bool[Tensor, "*rows"]:
        """Whether ``step`` (from 0) is the last one, of the call or of each position."""
        if self.lengths is None:
            return step == self.depth.max_steps - 1
        last = self.lengths == step + 1
        return last if self.rows is not None else last.unsqueeze(1)

    def mean_over_sequence(self, values: Values) -> Values:
        """The mean over the real positions of each sequence, for every position."""
        if self.sequences is not None:
            return self.sequences.mean(values)
        if self.idle is None:
            return values.mean(dim=1, keepdim=True).expand_as(values)
        real = ~self.idle
        total = (values * real).sum(dim=1, keepdim=True)
        return (total / real.sum(dim=1, keepdim=True).clamp(min=1)).expand_as(values)

    def over_sequence(self, function: Callable[[States], Tensor], states: Vectors) -> Float[Tensor, "*rows classes"]:
        """``function`` of the states of each sequence, for every position."""
        if self.sequences is not None:
            return self.sequences.apply(function, states)
        return function(states).unsqueeze(1).expand(-1, states.shape[1], -1)


def key_mask(padding: Bool[Tensor, "batch key"]) -> Bool[Tensor, "batch 1 1 key"]:
    """Keys that may be attended to. A sequence of padding only attends to itself, so that no softmax is empty."""
    visible = ~padding
    visible = visible | ~visible.any(dim=1, keepdim=True)
    return visible[:, None, None, :]


def causal_mask(
    query_index: Int[Tensor, "#batch query"],
    *,
    num_keys: int,
    padding: Bool[Tensor, "batch key"] | None = None,
) -> Bool[Tensor, "#batch 1 query key"]:
    """Queries attend to keys that are stored no later than themselves and are not padding; always to themselves."""
    stored = torch.arange(num_keys, device=query_index.device)
    mask = stored <= query_index.unsqueeze(-1)
    if padding is not None:
        mask = (mask & ~padding[:, None, :]) | (stored == query_index.unsqueeze(-1))
    return mask.unsqueeze(1)
