"""From ids to states: an embedding of each token, or one state for each short sentence.

`frames.py` has the inputs that are numbers.
"""

import math
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.functional import embedding

from universal_transformer.axes import Float, Int, Padding, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.models.components import needed
from universal_transformer.models.frame_input import FrameInput, PatchInput
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.models.positions.tables import Table


def check_ids(ids: Int[Tensor, "..."], *, size: int) -> None:
    """UserError when an id lies outside the vocabulary (on a CPU: on a GPU this would need a synchronisation)."""
    if ids.device.type == "cpu" and ids.numel() and not torch.compiler.is_compiling():
        least, most = (int(extreme) for extreme in ids.aminmax())
        if least < 0 or most >= size:
            raise UserError(f"token id {least if least < 0 else most}: allowed are 0 to {size - 1}")


def check_tokens(ids: Tensor, *, name: str, words: bool = False) -> None:
    """UserError unless ``ids`` are whole numbers [batch, position] (with ``words``: [batch, fact, word]), and some."""
    if torch.compiler.is_compiling():
        return
    if not isinstance(ids, Tensor):
        raise UserError(f"{name}: found {show(ids)}; expected a tensor of token ids")
    shape, axes = list(ids.shape), "[batch, fact, word]" if words else "[batch, position]"
    if ids.dtype not in (torch.long, torch.int):
        raise UserError(f"{name} of type {ids.dtype}: token ids are whole numbers, of type torch.long")
    if len(shape) == len(axes.split(",")) - 1:
        raise UserError(f"{name} of shape {shape}: expected {axes}; add the batch dimension: {name}.unsqueeze(0)")
    if len(shape) != len(axes.split(",")):
        raise UserError(f"{name} of shape {shape}: expected {axes}")
    if 0 in shape:
        raise UserError(f"{name} of shape {shape}: expected {axes}, at least one row of at least one position")


class _Embedding(Table):
    """The table ``E`` of ``size`` tokens, by default those of the source."""

    words: ClassVar[bool] = False
    """Whether a position has several ids."""

    def __init__(self, config: BaseConfig, width: int, *, size: int | None = None) -> None:
        super().__init__()
        size = needed(size or config.vocabulary.size, "vocabulary.size", by="a model needs a vocabulary")
        self.weight = nn.Parameter(torch.empty(size, width))
        self.padding_id = config.vocabulary.padding_id
        self.scale = math.sqrt(width) if config.inputs.scale_embeddings else 1.0

    def check(self, ids: Tensor) -> None:
        """UserError unless these are token ids of the axes that are read."""
        check_tokens(ids, name="source", words=self.words)

    def embed(self, ids: Int[Tensor, "*ids"]) -> Float[Tensor, "*ids width"]:
        """``E[id] * scale``, exactly 0 at padding."""
        check_ids(ids, size=self.weight.shape[0])
        blank = (ids == self.padding_id).unsqueeze(-1)
        return (self.scale * embedding(ids, self.weight)).masked_fill(blank, 0.0)


def texts_of(ids: Int[Tensor, "batch position"], *, end_id: int) -> Int[Tensor, "batch position"]:
    """The text of each token of a source of several: the number of end ids before it."""
    ends = ids == end_id
    return ends.cumsum(dim=1) - ends.long()


class TokenInput(_Embedding):
    """``E[id] * sqrt(width)``, exactly 0 at padding; with several segments ``E[id] * sqrt(width) + S[segment]``.

    The segment of a token is its text (`texts_of`).
    """

    owner = True
    """Whether the parameters are those of no other input."""

    def __init__(self, config: BaseConfig, width: int, *, size: int | None = None) -> None:
        super().__init__(config, width, size=size)
        segments = config.inputs.segments
        self.end_id = config.vocabulary.end_id
        self.segments = nn.Parameter(torch.empty(segments, width)) if segments > 1 else None

    @classmethod
    def of_targets(cls, config: BaseConfig, width: int, *, source: nn.Module | None) -> "TokenInput":
        """The embedding of targets: it shares the parameters of that of the source where both have one vocabulary."""
        size = None if source is None else config.vocabulary.target_size
        shared = getattr(source, "input", None)
        return shared._sharing() if size is None and type(shared) is cls else cls(config, width, size=size)

    def _sharing(self) -> "TokenInput":
        """Another input with the same parameters. A module that stands at two places of a model would be changed twice
        by what replaces parameters, such as ``torch.func.functional_call``, and restored once.
        """
        other = copy(self)
        other._parameters, other.owner = dict(self._parameters), False
        return other

    def initialise(self) -> None:
        """Tokens as a table; segments normal, standard deviation 1, that of scaled token embeddings."""
        if self.owner:
            super().initialise()
            if self.segments is not None:
                nn.init.normal_(self.segments)

    def feed(self, ids: Int[Tensor, "batch new"], state: Any) -> States:
        """The states of new targets in generation, of which ``state`` is that of the decoder."""
        del state
        return self(ids)

    def padding(self, ids: Int[Tensor, "batch position"]) -> Padding:
        return ids == self.padding_id

    def forward(self, ids: Int[Tensor, "batch position"]) -> States:
        if self.segments is None:
            return self.embed(ids)
        segment = texts_of(ids, end_id=self.end_id).clamp(max=len(self.segments) - 1)
        blank = self.padding(ids).unsqueeze(-1)
        return self.embed(ids) + embedding(segment, self.segments).masked_fill(blank, 0.0)


class FactInput(_Embedding):
    """One state a fact: ``sum_w mask[w] * E[word_w]`` over its words (End-to-End Memory Networks' position encoding,
    learned; the paper's bAbI encoding, section 3.1). ``mask`` has one row a word index.
    """

    words = True

    def __init__(self, config: BaseConfig, width: int) -> None:
        super().__init__(config, width)
        words, by = config.vocabulary.max_fact_words, "facts need the length of the longest one"
        self.mask = nn.Parameter(torch.empty(needed(words, "vocabulary.max_fact_words", by=by), width))

    def initialise(self) -> None:
        """Words as a table; the mask 1 + normal noise of standard deviation 1."""
        super().initialise()
        nn.init.normal_(self.mask, mean=1.0)

    def padding(self, ids: Int[Tensor, "batch position words"]) -> Padding:
        return (ids == self.padding_id).all(dim=-1)

    def forward(self, ids: Int[Tensor, "batch position words"]) -> Float[Tensor, "batch position width"]:
        words = ids.shape[-1]
        if words > self.mask.shape[0]:
            raise UserError(f"a fact of {words} words: this model takes at most {self.mask.shape[0]}")
        return (self.embed(ids) * self.mask[:words]).sum(dim=-2)


class RasterInput(TokenInput):
    """``E[left] * sqrt(width) + A[above]``: the pixel before, in the order of rows, and the pixel above.

    A row has ``columns`` pixels; in the first row the second term is 0.
    """

    def __init__(self, config: Any, width: int, *, size: int) -> None:
        super().__init__(config, width, size=size)
        self.above, self.columns = nn.Parameter(torch.empty(size, width)), config.outputs.columns

    def initialise(self) -> None:
        """Both as tables."""
        super().initialise()
        nn.init.normal_(self.above, std=self.above.shape[1] ** -0.5)

    def forward(self, ids: Int[Tensor, "batch position"]) -> States:
        return self._after(ids, ids, begin=0)

    def feed(self, ids: Int[Tensor, "batch new"], state: Any) -> States:
        begin = state.cache.length
        state.cache.check(ids.shape[1])
        if state.tokens is None:
            state.tokens = torch.zeros_like(state.padding, dtype=torch.long)
        state.tokens[:, begin : begin + ids.shape[1]] = ids
        return self._after(ids, state.tokens, begin=begin)

    def _after(self, ids: Int[Tensor, "batch new"], fed: Int[Tensor, "batch capacity"], *, begin: int) -> States:
        """The states of ``ids``, which stand in ``fed`` from ``begin`` on. The first of ``fed`` is no pixel."""
        place = torch.arange(begin, begin + ids.shape[1], device=ids.device) - self.columns + 1
        above = fed[:, place.clamp(min=0)].masked_fill(place < 1, self.padding_id)
        blank = self.padding(above).unsqueeze(-1)
        return super().forward(ids) + (self.scale * embedding(above, self.above)).masked_fill(blank, 0.0)


INPUTS: dict[str, Callable[[BaseConfig, int], Any]] = {
    "tokens": TokenInput,
    "facts": FactInput,
    "frames": FrameInput,
    "patches": PatchInput,
}
"""Kind of an input -> its class, which is called with a configuration and the width of states."""
WRITTEN: dict[str, type[TokenInput]] = {"tokens": TokenInput, "raster": RasterInput}
"""What a decoder writes -> how it reads what it has written."""
