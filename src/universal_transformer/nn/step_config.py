"""Choices of the paper's components, one frozen dataclass for each component. Importing this module needs no torch.

A field names its decision (D1 to D19 of ``docs/model.md``). Its default is that of `presets.PRESETS["paper"]`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from universal_transformer.typed import DropoutRate, Positive, Range


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
class AttentionConfig:
    """Multi-head scaled dot-product attention (paper, section 2.1, equations 2 and 3)."""

    bias: bool = False
    """D4: biases in the projections."""
    dropout: DropoutRate = 0.0
    """Dropout of attention weights."""
    key_value_heads: Positive | None = None
    """Heads of keys and values, each of them shared by equally many heads of queries (Ainslie et al. 2023). None: as
    many as heads."""
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
    """Dropout inside the transition."""


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
    residual: Literal["timed", "state", "previous"] = "timed"
    """D5: what self-attention is added to: the state with coordinates, or without them ("state": printed in the paper).
    "previous": as "state", and the transition is added to ``A^{t-1}`` (printed in version 1 and the patent)."""


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
    prior_steps: Annotated[float, Range(1)] | None = None
    """ponder: expected steps of the geometric prior. None: (max_steps + 1) / 2."""
    quantile: Annotated[float, Range(0, 1, above=True)] = 0.5
    """ponder: cumulative probability at which a position stops in inference."""
