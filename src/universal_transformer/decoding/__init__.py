"""Generation with cached keys and values, in batches: tokens by greedy search, sampling and beam search, and frames."""

from universal_transformer.decoding.beam import beam_search
from universal_transformer.decoding.continuous import generate_stream
from universal_transformer.decoding.frame_generation import GeneratedFrames, generate_frames
from universal_transformer.decoding.options import Beams, DecodingOptions
from universal_transformer.decoding.sampling import generate
from universal_transformer.models.call import GREEDY, Generated, Sampling

__all__ = [
    "GREEDY",
    "Beams",
    "DecodingOptions",
    "Generated",
    "GeneratedFrames",
    "Sampling",
    "beam_search",
    "generate",
    "generate_frames",
    "generate_stream",
]
