"""From a model to tokens: greedy, sampled, and by beam search; batched, with keys and values cached."""

from universal_transformer.decoding.beam import beam_search
from universal_transformer.decoding.continuous import Request, generate_continuously, generate_stream
from universal_transformer.decoding.sampling import GREEDY, Sampling, generate
from universal_transformer.decoding.session import Generated

__all__ = [
    "GREEDY",
    "Generated",
    "Request",
    "Sampling",
    "beam_search",
    "generate",
    "generate_continuously",
    "generate_stream",
]
