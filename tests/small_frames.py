"""Sources of every kind of input, and frames of chance."""

import math

import torch

from universal_transformer.models.components import InputsConfig, VocabularyConfig
from universal_transformer.nn.step_config import HaltingConfig, Sizes

SIZES = Sizes(width=8, filter_width=12, num_heads=2)
INPUTS = {
    "frames": {"kind": "frames", "features": 4},
    "joined frames": {"kind": "frames", "features": 4, "stride": 3},
    "convolved frames": {"kind": "frames", "features": 4, "stride": 4, "stem": "convolution"},
    "patches": {"kind": "patches", "features": 4, "stride": 2},
    "convolved patches": {"kind": "patches", "features": 4, "stride": 2, "stem": "convolution"},
    "pixels": {"kind": "patches", "features": 4},
}
SHAPE = {"fixed": {}, "halting": {"halting": HaltingConfig(side="both", bias=0.5)}}


def frames(*lengths, features=4, seed=0):
    """Rows of frames, padded with NaN on the right."""
    found = torch.full((len(lengths), max(lengths), features), math.nan)
    generator = torch.Generator().manual_seed(seed)
    for row, length in enumerate(lengths):
        found[row, :length] = torch.randn(length, features, generator=generator)
    return found


def tokens(*lengths, size=9, seed=0):
    """Rows of ids with an end, padded with 0 on the right."""
    found = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    generator = torch.Generator().manual_seed(seed)
    for row, length in enumerate(lengths):
        found[row, : length - 1] = torch.randint(3, size, (length - 1,), generator=generator)
        found[row, length - 1] = 2
    return found


def source_fields(given):
    """The fields of a model that reads sources of a kind of `INPUTS`, or "tokens"."""
    if given == "tokens":
        return {"vocabulary": VocabularyConfig(size=9)}
    return {"inputs": InputsConfig(**INPUTS[given])}
