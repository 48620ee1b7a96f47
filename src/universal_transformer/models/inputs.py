"""From ids to states: an embedding a token, or one state for each short sentence."""

import math

import torch
from torch import nn
from torch.nn.functional import embedding

from universal_transformer.axes import Float, Int, Padding, States, Tensor
from universal_transformer.errors import UserError


def _check_ids(ids: Int[Tensor, "..."], *, size: int) -> None:
    """UserError when an id lies outside the vocabulary (on a CPU; a GPU would have to wait for the answer)."""
    if ids.device.type == "cpu" and ids.numel() and not torch.compiler.is_compiling():
        least, most = (int(extreme) for extreme in ids.aminmax())
        if least < 0 or most >= size:
            raise UserError(f"token id {least if least < 0 else most}: allowed are 0 to {size - 1}")


def _check_vocabulary(size: int) -> None:
    """UserError for a vocabulary of nothing."""
    if size < 1:
        raise UserError(
            f"vocabulary_size={size}: a model needs a vocabulary; take it from the data or set the field"
        )


class TokenInput(nn.Module):
    """``E[id] * sqrt(width)``, exactly 0 at padding."""

    def __init__(self, vocabulary_size: int, width: int, *, padding_id: int, scale: bool) -> None:
        super().__init__()
        _check_vocabulary(vocabulary_size)
        self.weight = nn.Parameter(torch.empty(vocabulary_size, width))
        self.padding_id = padding_id
        self.scale = math.sqrt(width) if scale else 1.0

    def padding(self, ids: Int[Tensor, "batch position"]) -> Padding:
        """Where there is no token."""
        return ids == self.padding_id

    def forward(self, ids: Int[Tensor, "batch position"]) -> States:
        _check_ids(ids, size=self.weight.shape[0])
        return (self.scale * embedding(ids, self.weight)).masked_fill(self.padding(ids).unsqueeze(-1), 0.0)


class FactInput(nn.Module):
    """One state a fact: ``sum_w mask[w] * E[word_w]`` over its words (End-to-End Memory Networks' position encoding,
    learned; the paper's bAbI encoding, section 3.1). ``mask`` has one row a word index.
    """

    def __init__(
        self, vocabulary_size: int, width: int, *, max_fact_words: int, padding_id: int, scale: bool
    ) -> None:
        super().__init__()
        _check_vocabulary(vocabulary_size)
        if max_fact_words < 1:
            raise UserError(
                f"max_fact_words={max_fact_words}: facts need the length of the longest one; take it from the data"
            )
        self.weight = nn.Parameter(torch.empty(vocabulary_size, width))
        self.mask = nn.Parameter(torch.empty(max_fact_words, width))
        self.padding_id = padding_id
        self.scale = math.sqrt(width) if scale else 1.0

    def padding(self, ids: Int[Tensor, "batch position words"]) -> Padding:
        """A fact without a word is padding."""
        return (ids == self.padding_id).all(dim=-1)

    def forward(self, ids: Int[Tensor, "batch position words"]) -> Float[Tensor, "batch position width"]:
        _check_ids(ids, size=self.weight.shape[0])
        words = ids.shape[-1]
        if words > self.mask.shape[0]:
            raise UserError(f"a fact of {words} words: this model takes at most {self.mask.shape[0]}")
        blank = (ids == self.padding_id).unsqueeze(-1)
        states = (self.scale * embedding(ids, self.weight)).masked_fill(blank, 0.0)
        return (states * self.mask[:words]).sum(dim=-2)
