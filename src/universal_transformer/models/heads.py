"""Heads: from the states of a source to logits of classes, of a whole sequence or of each position."""

import math

import torch
from torch import nn

from universal_transformer.axes import Float, Int, Padding, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.components import needed
from universal_transformer.models.inputs import texts_of
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.nn.halting import accumulation_dtype
from universal_transformer.rules.exits import Head

FLOOR = 1e-9
"""Probability of a word that does not occur."""


def pool(
    states: Float[Tensor, "batch position width"], *, padding: Padding | None, how: str
) -> Float[Tensor, "batch width"]:
    """The "mean" over real positions, or the state of the "last" real position."""
    real = torch.ones_like(states[..., 0], dtype=torch.bool) if padding is None else ~padding
    if how == "mean":
        count = real.sum(dim=1, keepdim=True).clamp(min=1)
        return (states * real.unsqueeze(-1)).sum(dim=1) / count
    rows = torch.arange(states.shape[0], device=states.device)
    return states[rows, states.shape[1] - 1 - real.long().flip(1).argmax(dim=1)]


class ClassHead(nn.Linear):
    """``W pool(D(h)) + b``: one class for a sequence; without ``pooling`` ``W D(h_i) + b``, one for each position, of
    which those of padding have no meaning. D: dropout.
    """

    def __init__(self, width: int, num_classes: int, *, pooling: str | None, dropout: float = 0.0) -> None:
        super().__init__(width, num_classes)
        self.pooling, self.dropout = pooling, nn.Dropout(dropout)

    def reader(self, source: Tensor, *, padding: Padding | None) -> tuple[Head, bool]:
        """States to logits of ``source``, and whether whole sequences are read."""
        del source
        how = self.pooling
        if how is None:
            return lambda states: self(self.dropout(states)), False
        return lambda states: self(self.dropout(pool(states, padding=padding, how=how))), True


class ComparingHead(nn.Linear):
    """``W D([u; v; |u - v|; u * v]) + b``, u and v the means over the positions of the first and of the second text
    (Conneau et al., EMNLP 2017, section 3.1). D: dropout.
    """

    def __init__(self, width: int, num_classes: int, *, end_id: int, dropout: float = 0.0) -> None:
        super().__init__(4 * width, num_classes)
        self.end_id, self.dropout = end_id, nn.Dropout(dropout)

    def reader(self, source: Tensor, *, padding: Padding | None) -> tuple[Head, bool]:
        """States to logits of the sequences of ``source``, and that it reads whole sequences."""
        text = texts_of(source, end_id=self.end_id)
        blank = torch.zeros_like(text, dtype=torch.bool) if padding is None else padding

        def read(states: States) -> Float[Tensor, "batch classes"]:
            first, second = (pool(states, padding=blank | other, how="mean") for other in (text > 0, text == 0))
            return self(self.dropout(torch.cat([first, second, (first - second).abs(), first * second], dim=-1)))

        return read, True


class Pointer(nn.Module):
    r"""``p(word) = Σ_{i: x_i = word} a_i``, ``a = softmax_i(h_i · (W q) / √width)``: the attention sum (Kadlec et al.,
    ACL 2016).

    h_i is the state of position i (`states`), x_i its token (`source`), q the state of the last real position. The
    candidates i are the positions before the first ``start_id``, after which the question follows; all positions of a
    source without one. The logits are ``log(p + 1e-9)``, one for each token of the vocabulary.

    Raises UserError for a source whose question has no text before it, on a CPU. On a GPU, where the check would need
    a synchronisation, such a source gives logits that are not numbers.
    """

    def __init__(self, width: int, *, num_classes: int, start_id: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.query, self.dropout = nn.Linear(width, width, bias=False), nn.Dropout(dropout)
        self.num_classes = num_classes
        self.start_id = start_id

    def reader(self, source: Tensor, *, padding: Padding | None) -> tuple[Head, bool]:
        """States to logits of the sequences of ``source``, and that it reads whole sequences."""
        return lambda states: self(self.dropout(states), source, padding=padding), True

    def forward(
        self, states: States, source: Int[Tensor, "batch position"], *, padding: Padding | None
    ) -> Float[Tensor, "batch classes"]:
        real = torch.ones_like(source, dtype=torch.bool) if padding is None else ~padding
        candidates = real & ((source == self.start_id).cumsum(1) == 0)
        if source.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(candidates.any(dim=1).all()):
            raise UserError("a question without a text: there is no word to point at before the start id")
        query = self.query(pool(states, padding=padding, how="last"))
        scores = (states @ query.unsqueeze(-1)).squeeze(-1).to(accumulation_dtype(states.dtype))
        scores = scores / math.sqrt(states.shape[-1])
        attention = scores.masked_fill(~candidates, -math.inf).softmax(dim=1)
        probability = attention.new_zeros(source.shape[0], self.num_classes)
        return (probability.scatter_add(1, source, attention) + FLOOR).log()


def head_of(config: BaseConfig, width: int, *, pooling: str, dropout: float = 0.0) -> nn.Module:
    """The head of a classifier or a tagger whose states have ``width`` channels."""
    by = f"a {config.architecture} needs classes"
    classes = needed(config.vocabulary.num_classes, "vocabulary.num_classes", by=by)
    if pooling == "pointer":
        return Pointer(width, num_classes=classes, start_id=config.start_id, dropout=dropout)
    if pooling == "mean" and config.inputs.segments > 1:
        return ComparingHead(width, classes, end_id=config.vocabulary.end_id, dropout=dropout)
    return ClassHead(width, classes, pooling=None if config.architecture == "tagger" else pooling, dropout=dropout)
