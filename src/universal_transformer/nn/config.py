"""Choices of the paper's components, one frozen dataclass for each component. Importing this module needs no torch.

A field names its decision (D1 to D18 of ``docs/model.md``). The default is the paper's choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

from universal_transformer.typed import Count, DropoutRate, Positive, Range


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Channels and heads, the same for encoder and decoder."""

    width: Positive = 128
    """Channels of a state (d)."""
    filter_width: Positive = 512
    """Channels inside the transition."""
    num_heads: Positive = 4
    """Attention heads (k). It must divide the width."""


@dataclass(frozen=True, kw_only=True)
class CoordinatesConfig:
    """``P^t``, the position and step signals (paper, section 2.1, equations 6 and 7)."""

    layout: Literal["interleaved", "split"] = "interleaved"
    """D1: channel order of sinusoids: the paper's, counted from 1, or tensor2tensor's, counted from 0."""
    position: str = "sinusoidal"
    """D2: how positions are encoded, an entry of ``POSITIONS``. "distance" (D13): rotary, in attention to the source
    too, with a sink. "grid": a learned vector for the row, one for the column and one for the box of a board."""
    step: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """D2: how depth steps are encoded."""
    injection: Literal["every_step", "input"] = "every_step"
    """Add positions at every step (paper) or once at the input (Transformer)."""
    offsets: Literal["none", "random", "scattered", "spread"] = "none"
    """D3: positions in training: unchanged, shifted, a random sorted subset, or a subset of a random window."""
    independent_offsets: bool = False
    """D3: draw the offsets of source and target independently instead of using one draw for both."""
    max_positions: Positive = 512
    """D3: range of random positions, and number of rows of a learned position table."""
    from_end: bool = False
    """D12: also encode the distance of a source position from the end."""

    box_rows: Count = 0
    """Rows of a box of the board whose cells are the positions; a board has as many rows as a box has cells. The data
    determine it."""
    box_columns: Count = 0
    """Columns of a box. The data determine it."""

    @property
    def adds(self) -> bool:
        """Whether positions are added to states."""
        return self.position in ("sinusoidal", "learned", "grid")

    @property
    def rotates(self) -> bool:
        """Whether queries and keys are rotated by their positions."""
        return self.position in ("rotary", "distance")


POSITIONS: dict[str, str] = {
    "sinusoidal": "universal_transformer.models.positions.sinusoids:PicturePositions",
    "learned": "universal_transformer.models.positions.tables:LearnedPositions",
    "rotary": "universal_transformer.models.positions.rotary:RotaryPositions",
    "distance": "universal_transformer.models.positions.rotary:RotaryPositions",
    "grid": "universal_transformer.models.positions.tables:GridPositions",
    "none": "universal_transformer.nn.coordinates:PositionEncoder",
}
"""Name of a position encoding -> ``module:class``. See docs/extending.md for how to add one."""


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Multi-head scaled dot-product attention (paper, section 2.1, equations 2 and 3)."""

    bias: bool = False
    """D4: biases in the projections."""
    dropout: DropoutRate = 0.0
    """Dropout of attention weights."""
    rotary_source: bool = False
    """D13: rotate queries and keys of the attention to the source by their (rotary) positions too."""
    source_sink: bool = False
    """D13: the attention to the source has one more key, of zeros, with a learned value."""
    scale: Literal["head", "width"] = "head"
    """D18: divide scores by the square root of the channels of a head (d/k), or of the whole width (d), as printed."""


@dataclass(frozen=True, kw_only=True)
class TransitionConfig:
    """The recurrent transition function (paper, section 2.1)."""

    kind: str = "feed_forward"
    """Name of the transition, an entry of ``TRANSITIONS``."""
    dropout: DropoutRate = 0.0
    """Dropout after the ReLU."""


TRANSITIONS: dict[str, str] = {
    "feed_forward": "universal_transformer.nn.transition:FeedForward",
    "separable_convolution": "universal_transformer.models.convolution:SeparableConvolution",
}
"""Name of a transition -> ``module:class``. See docs/extending.md for how to add one."""


NORMS: dict[str, str] = {
    "post": "universal_transformer.nn.block:PostNorm",
    "pre": "universal_transformer.models.norms:PreNorm",
    "deep": "universal_transformer.models.norms:DeepNorm",
}
"""Name of a norm -> ``module:class``. See docs/extending.md for how to add one."""


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """What one depth step consists of (paper, equations 4 and 5)."""

    norm: str = "post"
    """D6: name of the norm, an entry of ``NORMS``. LayerNorm after each residual sum ("post", paper), before each
    sub-layer ("pre", tensor2tensor), or after a sum with a larger residual, and smaller initial weights ("deep")."""
    norm_epsilon: Annotated[float, Range(0, 1, above=True)] = 1e-6
    """Added to the variance inside LayerNorm."""
    dropout: DropoutRate = 0.1
    """Dropout of the output of each sub-layer and of the embeddings."""
    tied: bool = True
    """One block for all steps (Universal Transformer), or separate blocks for each step (Transformer)."""
    blocks: Positive = 1
    """D14: blocks applied in one depth step."""
    residual: Literal["timed", "state"] = "timed"
    """D5: what self-attention is added to: the state with coordinates, or without them (printed in the patent)."""


MOST_STEPS = 2**16
"""Limit of ``max_steps``: the signals of all steps are computed before the first one, and a typing error would fill
the memory."""


@dataclass(frozen=True, kw_only=True)
class DepthConfig:
    """D15: how many steps the encoder and the decoder take."""

    max_steps: Positive | Literal["length"] = 6
    """T: the number of steps of a fixed depth, and the largest number of steps of a halting model. "length": the number
    of real positions of each sequence, in encoders (paper, section 4)."""
    min_steps: Positive = 1
    """The halting unit decides from this step on: no position halts earlier."""
    decoder_max_steps: Count = 0
    """``max_steps`` of the decoder. 0: that of the encoder."""
    decoder_min_steps: Count = 0
    """``min_steps`` of the decoder. 0: that of the encoder."""


@dataclass(frozen=True, kw_only=True)
class HaltingConfig:
    """Dynamic halting (paper, section 2.2; Graves 2016)."""

    side: Literal["none", "encoder", "decoder", "both"] = "none"
    """D15: where positions halt. "both" means every side that the model has."""
    rule: str = "act"
    """D16: name of the rule, an entry of ``HALTING_RULES``."""
    threshold: Annotated[float, Range(0, 1, above=True)] = 0.99
    """Cumulative probability at which a position halts (1 - epsilon)."""
    bias: Annotated[float, Range(-100, 100)] | None = None
    """D11: initial bias of the halting unit: a lower value starts with more steps. None:
    ``-ln(2 max_steps - 1)``, so that a position takes about all steps at first."""
    remainder_at_cap: bool = True
    """D7: a position that still runs at the last step halts there and takes its remainder: its weights sum to 1."""
    output: Literal["mean", "interpolate", "final"] = "mean"
    """D8: the weighted mean of the states, the interpolation printed in the paper, or the last state."""
    state: Literal["frozen", "evolving"] = "frozen"
    """D9: others attend to the last state of a halted position, or to a state that still changes (tensor2tensor)."""
    scope: Literal["position", "sequence"] = "position"
    """D10: each position halts by itself, or all positions of a sequence halt together."""
    prior: Literal["geometric", "uniform"] = "geometric"
    """ponder: the distribution over steps that the loss compares with."""
    prior_steps: Annotated[float, Range(0)] = 0.0
    """ponder: expected steps of the geometric prior. 0: (max_steps + 1) / 2."""
    quantile: Annotated[float, Range(0, 1, above=True)] = 0.5
    """ponder: cumulative probability at which a position stops in inference."""


def load_object(path: str) -> Any:
    """What an entry ``module:attribute`` of a registry names."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
