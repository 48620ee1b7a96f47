"""Generation as callers see it: how the next token is chosen, and what a generated sequence holds. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from universal_transformer.errors import UserError
from universal_transformer.typed import AtLeastOne, NonNegative, Range, check


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen. A value that is not allowed raises a UserError."""

    temperature: NonNegative = 0.0
    """0 takes the likeliest token; 1 draws from the model's distribution; larger values flatten the distribution."""
    top_k: AtLeastOne | None = None
    """Draw from this number of likeliest tokens; None: from all tokens."""
    top_p: Annotated[float, Range(0, 1, above=True)] = 1.0
    """Draw from the smallest set of likeliest tokens whose probability is at least this; 1: from all tokens."""
    seed: Annotated[int, Range(0)] = 0
    """The seed and the number of a row determine all draws of that row."""

    def __post_init__(self) -> None:
        check(self)
        for name, none in (("top_k", None), ("top_p", 1.0)):
            if self.temperature == 0.0 and (value := getattr(self, name)) != none:
                raise UserError(f"{name}={value}: it is for sampling: give a temperature too, 1 for the model's own")


GREEDY = Sampling()

LENGTH_PENALTY = 0.6
"""Default exponent α of the length penalty of a beam search (Wu et al. 2016, section 7)."""


def score_divisor(length: int, *, length_penalty: float) -> float:
    """``lp(y) = ((5 + length) / 6)^length_penalty``; the end token counts."""
    return ((5 + length) / 6) ** length_penalty


@dataclass(frozen=True, kw_only=True)
class Generated:
    """One generated sequence. ``token_scores`` and ``token_steps`` have one value more than ``tokens`` if it ended."""

    tokens: list[int]
    """Token ids, without the end token."""
    finished: bool
    """Whether it ended with the end token; False for a sequence that was cut at its limit."""
    token_scores: list[float]
    """Log-probability of each token, and of the end token when ``finished``."""
    token_steps: list[float]
    """Depth steps that the decoder made to predict each of them; 0 for a model without depth."""
    source_steps: list[float]
    """Depth steps of the encoder for each source position; empty without an encoder, and without depth."""
    text: str | None = None
    """The sequence as text, where the source was text."""
    length_penalty: float = 0.0
    """Exponent α of the length penalty of a beam search."""

    @property
    def score(self) -> float:
        """Natural logarithm of the probability that the model gives to the sequence: the sum of ``token_scores``."""
        return sum(self.token_scores)

    @property
    def penalised_score(self) -> float:
        """What sequences are ranked by: ``log p(y | x) / lp(y)``."""
        return self.score / score_divisor(len(self.token_scores), length_penalty=self.length_penalty)

    @property
    def steps(self) -> float:
        """Mean depth steps of the decoder for a token."""
        return sum(self.token_steps) / len(self.token_steps)
