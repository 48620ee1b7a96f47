"""The cache of transformers' ``generate`` that leaves out halted positions: a `Cache` that holds ours.

The model takes any other dynamic cache of transformers too, of one layer for each slot, and then computes all positions
at all steps.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, EncoderDecoderCache

from universal_transformer.axes import Bool, Float, Int, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.execution.packing import packed
from universal_transformer.models.call import AS_TRAINED
from universal_transformer.models.model import Call, EncodedSource
from universal_transformer.models.target import DecoderSide, DecoderState
from universal_transformer.nn.context import AllHeads, ProjectedSource


class DepthCache(Cache):
    """Keys and values of all slots of ``decoder``, and of its source, for generation.

    Space for ``capacity`` positions is taken when the first ones come, and grows when they do not fit. The matrices
    of the decoder are packed (`execution/packing.py`) as they are when the cache is used for the second time.
    """

    def __init__(self, decoder: DecoderSide, *, capacity: int = 1) -> None:
        super().__init__(layers=[])
        self.decoder, self.first_capacity, self.used = decoder, capacity, 0
        self.own: KeyValueCache | None = None
        self.source: list[ProjectedSource] | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions that are stored."""
        del layer_idx
        return 0 if self.own is None else self.own.length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Keys that ``query_length`` new positions attend to, and where the first one stands."""
        return self.get_seq_length(layer_idx) + query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """No maximum."""
        del layer_idx
        return -1

    @property
    def is_initialized(self) -> bool:
        """Whether it holds a position."""
        return self.get_seq_length() > 0

    @property
    def is_croppable(self) -> bool:
        """What is cropped leaves no trace."""
        return True

    @property
    def batch_size(self) -> int:
        """Rows; -1 before the first positions."""
        return -1 if self.own is None else self.own.entries.shape[1]

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` positions, which later ones overwrite.

        UserError for a positive number, as in transformers.
        """
        if tokens_to_remove > 0:
            raise UserError(f"tokens_to_remove={tokens_to_remove}: a number of positions to remove is negative")
        if self.own is not None:
            self.own.length += int(tokens_to_remove)

    def reset(self) -> None:
        """Forget all positions and the source."""
        self.own = self.source = None

    def reorder_cache(self, beam_idx: Int[Tensor, "rows"]) -> None:
        """Rows ``beam_idx`` in place of the present ones; the source moves along."""
        if self.own is not None:
            self.own.reorder(beam_idx)
        if self.source is not None:
            self.source = [
                ProjectedSource(key[beam_idx], value[beam_idx], None if mask is None else mask[beam_idx])
                for key, value, mask in self.source
            ]

    def batch_select_indices(self, indices: Int[Tensor, "rows"]) -> None:
        """The same, for a search that drops rows."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row so many times."""
        self.reorder_cache(torch.arange(self.batch_size).repeat_interleave(repeats))

    def state(
        self, encoded: EncodedSource | None, *, batch: int, new: int, hidden: Bool[Tensor, "batch stored"] | None
    ) -> DecoderState:
        """The state of our decoder before ``new`` positions; ``hidden``: padding of the stored and the new ones."""
        needed, self.used = self.get_seq_length() + new, self.used + 1
        if self.used == 2:
            self.decoder = packed(self.decoder)
        if self.own is None:
            started = self.decoder.start(encoded, Call(), batch=batch, capacity=max(needed, self.first_capacity))
            self.own, self.source = started.cache, started.source
        elif needed > self.own.capacity:
            self.own = self._grown(self.own, max(needed, 2 * self.own.capacity))
        return state_of(self.decoder, self.own, self.source, hidden=hidden)

    def _grown(self, old: KeyValueCache, capacity: int) -> KeyValueCache:
        """A cache of more positions with the same content."""
        slots, batch, _, both = old.entries.shape
        new = KeyValueCache(
            slots,
            batch=batch,
            num_heads=old.num_heads,
            capacity=capacity,
            width=both // 2,
            convolution=0 if old.inputs is None else old.inputs.shape[3],
            like=old.entries,
        )
        new.length, new.projection = old.length, old.projection
        new.entries[:, :, : old.length] = old.entries[:, :, : old.length]
        if new.inputs is not None and old.inputs is not None:
            new.inputs[:, :, : old.length] = old.inputs[:, :, : old.length]
        return new


class SlotsOfCache:
    """Our protocol of a cache over the layers of another one of transformers, one for each slot.

    UserError for one that does not grow by itself.
    """

    def __init__(self, cache: Any, decoder: DecoderSide) -> None:
        whole, self.decoder = cache, decoder
        self.cache = whole.self_attention_cache if isinstance(whole, EncoderDecoderCache) else whole
        if not isinstance(self.cache, Cache) or self.cache.is_compileable:
            allowed = "DepthCache, and caches of transformers that grow: DynamicCache"
            raise UserError(f"cache={type(cache).__name__}: allowed are {allowed}")
        self.length = self.get_seq_length()

    def get_seq_length(self) -> int:
        """Positions that are stored."""
        return int(self.cache.get_seq_length())

    def state(
        self, encoded: EncodedSource | None, *, batch: int, new: int, hidden: Bool[Tensor, "batch stored"] | None
    ) -> DecoderState:
        """The state of our decoder, as of `DepthCache`; the source is projected again."""
        del batch, new
        return state_of(self.decoder, self, self.decoder.project(encoded), hidden=hidden)

    def check(self, new: int) -> None:
        """Any number of further positions fits."""

    def append(
        self, key: Float[Tensor, "batch heads new head"], value: Float[Tensor, "batch heads new head"], *, slot: int
    ) -> tuple[AllHeads, AllHeads]:
        """Store new keys and values; all of them."""
        keys, values = self.cache.update(key, value, slot)
        return keys, values

    def extend(
        self, states: Float[Tensor, "batch new width"], *, reach: int, slot: int
    ) -> Float[Tensor, "batch seen width"]:
        """UserError: there is no place for the inputs of a convolution."""
        del states, reach, slot
        raise UserError(f"cache={type(self.cache).__name__}: this model has convolutions and needs a DepthCache")


def state_of(
    decoder: DecoderSide,
    cache: Any,
    source: list[ProjectedSource] | None,
    *,
    hidden: Bool[Tensor, "batch stored"] | None,
) -> DecoderState:
    """The state of a decoder whose ``cache`` holds positions, of which ``hidden`` says what is padding, the new ones
    included.
    """
    length = cache.length
    if hidden is None:
        zeros = torch.zeros(1, dtype=torch.long)
        lengths, padding = zeros + length, zeros.bool().unsqueeze(0)
    else:
        lengths, padding = (~hidden[:, :length]).sum(1), hidden.clone()
    depth = AS_TRAINED.of(decoder.recurrence, head=None)
    return DecoderState(cache, source, lengths, padding, depth, padded=hidden is not None)
