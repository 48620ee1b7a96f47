"""Generation with cached keys and values, in batches: tokens by greedy search, sampling and beam search, and frames."""

from universal_transformer.decoding.beam import beam_search as beam_search
from universal_transformer.decoding.continuous import generate_stream as generate_stream
from universal_transformer.decoding.frame_generation import GeneratedFrames as GeneratedFrames
from universal_transformer.decoding.frame_generation import generate_frames as generate_frames
from universal_transformer.decoding.options import Beams as Beams
from universal_transformer.decoding.options import DecodingOptions as DecodingOptions
from universal_transformer.decoding.sampling import generate as generate
from universal_transformer.models.call import GREEDY as GREEDY
from universal_transformer.models.call import Generated as Generated
from universal_transformer.models.call import Sampling as Sampling
