"""What the positions of one call may attend to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from universal_transformer.axes import Bool, Int, Padding, States, Tensor
from universal_transformer.nn.attention import ProjectedSource
from universal_transformer.nn.cache import KeyValueCache, OtherPositions
from universal_transformer.nn.coordinates import PositionEncoding
from universal_transformer.nn.halting import Sequences


@runtime_checkable
class Exchange(OtherPositions, Sequences, Protocol):
    """The other positions of the sequences, in a call that has only a part of them."""


@dataclass
class AttentionRecord:
    """Attention weights, one tensor ``[batch, heads, query, key]`` for each application of a block, in order."""

    self_attention: list[Tensor] = field(default_factory=list)
    cross_attention: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class AttentionContext:
    """What the positions of one call may attend to: the same at every step.

    ``mask`` (True where a query may look) or ``causal`` (the plain causal mask) restricts self-attention. ``padding``
    covers the positions of this call, ``cached_padding`` also those that the cache holds already. ``record`` and
    ``states`` take what a trace keeps: attention weights, and the states after each step. ``lengths``: the last step of
    each sequence, where these differ (decision D15). ``exchange``: the other positions, of a call that has only a part.
    """

    encoding: PositionEncoding
    padding: Padding | None
    mask: Bool[Tensor, "..."] | None
    causal: bool
    source: Sequence[ProjectedSource] | None
    cache: KeyValueCache | None
    cached_padding: Bool[Tensor, "batch stored"] | None
    record: AttentionRecord | None
    lengths: Int[Tensor, "batch"] | None = None
    states: list[States] | None = None
    exchange: Exchange | None = None

    def is_last(self, step: int, max_steps: int) -> bool | Bool[Tensor, "batch position"]:
        """Whether ``step`` (from 0) is the last one, of the call or of each position."""
        if self.lengths is None:
            return step == max_steps - 1
        return (self.lengths == step + 1).unsqueeze(1).expand(-1, self.encoding.positions.shape[1])
