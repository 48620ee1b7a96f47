"""Pointing to a word of the text: the attention sum (Kadlec et al., ACL 2016), over refined states."""

from __future__ import annotations

import math

import torch
from torch import nn

from universal_transformer.axes import Float, Int, Padding, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.halting import accumulation_dtype
from universal_transformer.rules.exits import Head

FLOOR = 1e-9
"""Probability of a word that does not occur."""


class Pointer(nn.Module):
    r"""``p(word) = Σ_{i: x_i = word} a_i``, ``a = softmax_i(h_i · (W q) / √width)``.

    h_i is the state of position i (`states`), x_i its token (`source`), q the state of the last real position. The
    candidates i are the positions before the first ``start_id``, after which the question follows; all positions of a
    source without one. The logits are ``log(p + 1e-9)``, one for each token of the vocabulary.

    Raises UserError for a source whose question has no text before it, on a CPU. On a GPU, where the check would need
    a synchronisation, such a source gives logits that are not numbers.
    """

    def __init__(self, width: int, *, num_classes: int, start_id: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.num_classes = num_classes
        self.start_id = start_id

    def reader(self, source: Tensor, *, padding: Padding | None) -> tuple[Head, bool]:
        """States to logits of the sequences of ``source``, and that it reads whole sequences."""
        return lambda states: self(states, source, padding=padding), True

    def forward(
        self, states: States, source: Int[Tensor, "batch position"], *, padding: Padding | None
    ) -> Float[Tensor, "batch classes"]:
        real = torch.ones_like(source, dtype=torch.bool) if padding is None else ~padding
        candidates = real & ((source == self.start_id).cumsum(1) == 0)
        if source.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(candidates.any(dim=1).all()):
            raise UserError("a question without a text: there is no word to point at before the start id")
        last = source.shape[1] - 1 - real.long().flip(1).argmax(dim=1)
        query = self.query(states[torch.arange(states.shape[0], device=states.device), last])
        scores = (states @ query.unsqueeze(-1)).squeeze(-1).to(accumulation_dtype(states.dtype))
        scores = scores / math.sqrt(states.shape[-1])
        attention = scores.masked_fill(~candidates, -math.inf).softmax(dim=1)
        probability = attention.new_zeros(source.shape[0], self.num_classes)
        return (probability.scatter_add(1, source, attention) + FLOOR).log()
