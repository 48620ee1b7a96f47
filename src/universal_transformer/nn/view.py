"""What the positions of a recurrence may see."""

from collections.abc import Sequence
from dataclasses import dataclass

from universal_transformer.axes import Bool, Padding, Tensor
from universal_transformer.nn.attention import Memory
from universal_transformer.nn.block import AttentionRecord
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.coordinates import Placed
from universal_transformer.nn.recall import Recall


@dataclass(frozen=True, kw_only=True)
class View:
    """What the positions of one call may see; the same at every step."""

    placed: Placed
    padding: Padding | None
    mask: Bool[Tensor, "..."] | None
    causal: bool
    memory: Sequence[Memory] | None
    cache: KeyValueCache | None
    cached_padding: Bool[Tensor, "batch stored"] | None
    record: AttentionRecord | None
    recall: Recall | None = None
