"""Generation of tokens: greedy search, sampling and beam search, in batches, with cached keys and values."""

from universal_transformer.decoding.beam import beam_search
from universal_transformer.decoding.continuous import (
    DecodingOptions,
    Request,
    generate_continuously,
    generate_stream,
)
from universal_transformer.decoding.sampling import generate
from universal_transformer.decoding.search import answer, search
from universal_transformer.models.generated import GREEDY, Generated, Sampling

__all__ = [
    "GREEDY",
    "DecodingOptions",
    "Generated",
    "Request",
    "Sampling",
    "answer",
    "beam_search",
    "generate",
    "generate_continuously",
    "generate_stream",
    "search",
]
