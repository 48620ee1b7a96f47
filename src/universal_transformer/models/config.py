"""What a model is: one flat, frozen, validated configuration, its presets and its sizes.

Decisions D1 to D13 of ``docs/model.md`` are fields here, with the paper's choice as the default.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from universal_transformer.errors import UserError


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Every choice that shapes a model. A value that is not allowed is a UserError naming field, value and remedy."""

    architecture: Literal["encoder_decoder", "language_model", "classifier"] = "encoder_decoder"
    """What goes in and out: sequence to sequence, next token, or one class a sequence."""
    width: int = 128
    """Channels of a state (d)."""
    filter_width: int = 512
    """Channels inside the transition."""
    num_heads: int = 4
    """Attention heads (k); must divide width."""
    max_steps: int = 6
    """Depth T: steps of a fixed model, the cap of a halting one."""
    vocabulary_size: int = 0
    """Source (or only) vocabulary; 0 means: taken from the data."""
    target_vocabulary_size: int = 0
    """Target vocabulary; 0 means: the source's vocabulary and embedding serve both sides."""
    num_classes: int = 0
    """Classes of a classifier; 0 means: taken from the data."""
    inputs: Literal["tokens", "facts"] = "tokens"
    """One token a position, or one fact (a short sentence) a position."""
    max_fact_words: int = 0
    """Longest fact in words; 0 means: taken from the data."""
    fact_mask_init: Literal["noise", "ones"] = "noise"
    """How the word-position mask of facts starts: 1 + noise, or all ones (a bag of words)."""
    pooling: Literal["mean", "last", "pointer"] = "mean"
    """What a classifier reads: the mean over positions, the last position; or it points at a token of its source."""
    padding_id: int = 0
    """Token id of padding."""
    start_id: int = 1
    """Token id that stands before the first target token."""
    end_id: int = 2
    """Token id that ends a target."""
    tie_output: bool = True
    """Use the target embedding as the output matrix."""
    output_bias: bool = True
    """Add a bias to the logits."""
    scale_embeddings: bool = True
    """Multiply embeddings by sqrt(width)."""
    num_target_spaces: int = 0
    """Rows of an embedding of the problem, added to every source position (tensor2tensor); 0: none."""

    tied: bool = True
    """One block for all steps (Universal Transformer), or a block of its own for each (Transformer)."""
    layers_per_step: int = 1
    """Blocks applied in one depth step."""
    plain_layers_before: int = 0
    """Ordinary layers in front of the recurrence."""
    plain_layers_after: int = 0
    """Ordinary layers behind the recurrence."""
    norm: Literal["post", "pre"] = "post"
    """LayerNorm after each residual (paper) or before each sub-layer (tensor2tensor)."""
    norm_epsilon: float = 1e-6
    """Added to the variance inside LayerNorm."""
    attention_bias: bool = False
    """Biases in the attention projections."""
    transition: Literal["feed_forward", "separable_convolution"] = "feed_forward"
    """The transition function."""
    zero_padding: bool = False
    """The feed-forward transition gives 0 at padding (tensor2tensor's pad remover)."""
    dropout: float = 0.1
    """On each sub-layer's output and on the embeddings."""
    attention_dropout: float = 0.0
    """On attention weights."""
    transition_dropout: float = 0.0
    """After the ReLU of the transition."""

    coordinate_layout: Literal["interleaved", "split"] = "interleaved"
    """Channel order of the sinusoids, and where they count from: the paper's (1) or tensor2tensor's (0)."""
    position_coordinates: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    """How a position is told."""
    step_coordinates: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """How a depth step is told."""
    scale_step_table: bool = False
    """Multiply a learned step table by the square root of its width (tensor2tensor)."""
    combine_coordinates: Literal["add", "concatenate"] = "add"
    """Add coordinates to the state, or concatenate and project back."""
    position_injection: Literal["every_step", "input"] = "every_step"
    """Positions at every step (paper) or once at the input (Transformer)."""
    position_start: Literal["fixed", "step"] = "fixed"
    """Where positions start: always the same, or shifted by length * t / T at step t (tensor2tensor)."""
    position_offsets: Literal["none", "random", "scattered", "spread"] = "none"
    """Positions while training: as they are, shifted at random, a random sorted subset, or one of a random window."""
    independent_offsets: bool = False
    """Draw source and target offsets independently instead of sharing the draw."""
    max_positions: int = 512
    """Range of random positions, and rows of a learned position table."""
    end_coordinates: bool = False
    """Source positions also tell their distance from the end."""
    rotary_source: bool = False
    """Attention to the source turns queries and keys by their (rotary) positions too."""
    source_sink: bool = False
    """Attention to the source may look at nothing: a key of zeros with a learned value."""
    separator_id: int = 0
    """Token behind which source positions begin again, in another part of the source; 0: none."""

    halting: bool = False
    """Halt each position by itself (adaptive computation time)."""
    halting_threshold: float = 0.99
    """Cumulative probability at which a position halts (1 - epsilon)."""
    halting_bias: float = -1.0
    """Initial bias of the halting unit: below 0 starts with more steps, above 0 with fewer."""
    remainder_at_cap: bool = True
    """A position still running at the last step takes its remainder there, so that its weights sum to 1."""
    halting_output: Literal["mean", "interpolate", "final"] = "mean"
    """The output: weighted mean of the states, the paper's running interpolation, or the last state."""
    halting_state: Literal["frozen", "evolving"] = "frozen"
    """What others see of a halted position: its last state, or one that goes on changing (tensor2tensor)."""
    halting_scope: Literal["position", "sequence"] = "position"
    """Halt every position by itself, or all of a sequence together."""
    ponder_padding: bool = False
    """Padding ponders like any other position (tensor2tensor)."""
    allow_look_ahead: bool = False
    """Accept choices that let a decoder see the future (official checkpoints have them); generation is refused."""

    recurrence: Literal["auto", "masked"] = "auto"
    """Leave out halted positions where that is exact and saves time, or always compute all: the same numbers."""
    activation_checkpointing: bool = False
    """Keep one state a position and depth step for the backward pass, compute the rest again: less memory, slower."""

    def __post_init__(self) -> None:
        check_types(vars(self), kind=type(self))
        _check_sizes(self)
        _check_combinations(self)

    @property
    def looks_ahead(self) -> bool:
        """Whether a decoder of this configuration sees later target positions."""
        decoder = self.architecture != "classifier"
        sequence = self.halting and self.halting_scope == "sequence"
        return decoder and (sequence or self.position_start == "step")

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON values; of those that only say how it is computed (:data:`EXECUTION`) what was chosen."""
        fields = dataclasses.asdict(self)
        return {
            name: value for name, value in fields.items() if name not in EXECUTION or value != EXECUTION[name]
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "ModelConfig":
        """The inverse of :meth:`to_dict`; UserError for unknown fields and for values of the wrong type."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise UserError(f"model configuration has unknown fields {', '.join(unknown)}")
        check_types(fields, kind=cls)
        return cls(**fields)


def _refuse(field: str, value: object, remedy: str) -> UserError:
    return UserError(f"{field}={value!r}: {remedy}")


def check_types(fields: Mapping[str, object], *, kind: type) -> None:
    """UserError for the first value that is not of the type that the dataclass ``kind`` says."""
    kinds = get_type_hints(kind)
    for name, value in fields.items():
        wanted = kinds[name]
        allowed = get_args(wanted)
        if allowed:
            if value not in allowed:
                raise _refuse(name, value, "allowed: " + ", ".join(map(str, allowed)))
        elif wanted is float:
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
                raise _refuse(name, value, "a number is needed")
        elif type(value) is not wanted:
            raise _refuse(name, value, f"a value of type {wanted.__name__} is needed")


def _check_sizes(config: ModelConfig) -> None:
    limits = {
        "width": 1, "filter_width": 1, "num_heads": 1, "max_steps": 1, "layers_per_step": 1, "max_positions": 1,
        "vocabulary_size": 0, "target_vocabulary_size": 0, "num_classes": 0, "max_fact_words": 0,
        "plain_layers_before": 0, "plain_layers_after": 0, "num_target_spaces": 0,
        "padding_id": 0, "start_id": 0, "end_id": 0, "separator_id": 0,
    }  # fmt: skip
    for name, least in limits.items():
        value = getattr(config, name)
        if not least <= value < 2**31:
            raise _refuse(name, value, f"at least {least} and below 2^31")
    for name in ("dropout", "attention_dropout", "transition_dropout"):
        if not 0.0 <= getattr(config, name) < 1.0:
            raise _refuse(name, getattr(config, name), "a probability in [0, 1)")
    if not 0.0 < config.halting_threshold <= 1.0:
        raise _refuse("halting_threshold", config.halting_threshold, "a cumulative probability in (0, 1]")
    if not 0.0 < config.norm_epsilon <= 1.0:
        raise _refuse("norm_epsilon", config.norm_epsilon, "above 0 and at most 1")
    if abs(config.halting_bias) > 100.0:
        raise _refuse("halting_bias", config.halting_bias, "between -100 and 100")


def _check_combinations(config: ModelConfig) -> None:
    if config.width % config.num_heads:
        heads = [n for n in range(1, min(config.width, 1024) + 1) if config.width % n == 0]
        raise _refuse("num_heads", config.num_heads, f"must divide width={config.width}: one of {heads}")
    sines = config.position_coordinates == "sinusoidal" or config.step_coordinates == "sinusoidal"
    if config.width % 2 and (sines or config.end_coordinates):
        raise _refuse("width", config.width, "sinusoidal coordinates come in pairs: an even width is needed")
    if config.position_coordinates == "rotary" and (config.width // config.num_heads) % 2:
        raise _refuse(
            "num_heads",
            config.num_heads,
            f"rotary coordinates turn pairs of channels: width / num_heads must be even, not "
            f"{config.width // config.num_heads}",
        )
    if config.pooling == "pointer":
        if config.inputs == "facts":
            raise _refuse("pooling", "pointer", 'points at a token: inputs must be "tokens"')
        if config.num_classes not in (0, config.vocabulary_size):
            raise _refuse(
                "num_classes", config.num_classes, "a pointer's classes are the tokens of its vocabulary"
            )
    _check_source(config)
    _check_positions(config)
    if (
        config.end_coordinates
        and config.position_coordinates not in ("sinusoidal", "learned")
        and not config.rotary_source
    ):
        raise _refuse(
            "end_coordinates", True, "needs position_coordinates sinusoidal or learned, or rotary_source"
        )
    if config.end_coordinates and config.position_start == "step":
        raise _refuse(
            "end_coordinates", True, 'needs position_start="fixed": a shifted start has no fixed end'
        )
    if config.end_coordinates and config.architecture == "language_model":
        raise _refuse("end_coordinates", True, "a language model does not know where its text ends")
    if config.inputs == "facts" and config.architecture != "classifier":
        raise _refuse("inputs", "facts", f'architecture must be "classifier", not "{config.architecture}"')
    _check_ids(config)
    if config.looks_ahead and not config.allow_look_ahead:
        field = "position_start" if config.position_start == "step" else "halting_scope"
        raise _refuse(
            field,
            getattr(config, field),
            "lets a causal decoder see the length or the content of its future: use it with a classifier, or set "
            "allow_look_ahead to score official checkpoints that were trained so",
        )


def _check_positions(config: ModelConfig) -> None:
    """Refuse what would tell positions otherwise than it says."""
    every_step = config.position_injection == "every_step"
    if config.position_start == "step" and not (
        every_step and config.position_coordinates in ("sinusoidal", "learned")
    ):
        raise _refuse(
            "position_start",
            "step",
            "shifts what is added at every step: needs position_coordinates sinusoidal or learned, and "
            'position_injection="every_step"',
        )
    if config.plain_layers_before and every_step and config.position_coordinates == "learned":
        raise _refuse(
            "plain_layers_before",
            config.plain_layers_before,
            "layers in front of the loop do not see what is learned inside of it: needs "
            'position_injection="input", or other position_coordinates',
        )


def _check_source(config: ModelConfig) -> None:
    """What a decoder's attention to the source needs."""
    for field in ("rotary_source", "source_sink", "separator_id"):
        if getattr(config, field) and config.architecture != "encoder_decoder":
            raise _refuse(
                field, getattr(config, field), f"an encoder_decoder is needed, not a {config.architecture}"
            )
    if config.rotary_source and config.position_coordinates != "rotary":
        raise _refuse("rotary_source", True, "needs position_coordinates rotary")
    if config.rotary_source and config.end_coordinates and config.num_heads % 2:
        raise _refuse(
            "num_heads", config.num_heads, "half of them count from the end: an even number is needed"
        )
    if config.separator_id and config.end_coordinates:
        raise _refuse("separator_id", config.separator_id, "parts have no common end: end_coordinates=False")
    if config.separator_id and config.separator_id == config.padding_id:
        raise _refuse("separator_id", config.separator_id, "must differ from padding_id")
    if config.vocabulary_size and config.separator_id >= config.vocabulary_size:
        raise _refuse(
            "separator_id",
            config.separator_id,
            f"vocabulary_size={config.vocabulary_size} ends at id {config.vocabulary_size - 1}",
        )


def _check_ids(config: ModelConfig) -> None:
    names, vocabulary = ["padding_id"], "vocabulary_size"
    if config.architecture != "classifier":
        names += ["start_id", "end_id"]
        vocabulary = "target_vocabulary_size" if config.target_vocabulary_size else vocabulary
        if config.end_id == config.padding_id:
            raise _refuse("end_id", config.end_id, "must differ from padding_id, or no target could end")
    size = getattr(config, vocabulary)
    for name in names:
        if size and getattr(config, name) >= size:
            raise _refuse(name, getattr(config, name), f"{vocabulary}={size} ends at id {size - 1}")


EXECUTION: dict[str, Any] = {"recurrence": "auto", "activation_checkpointing": False}
"""Fields, with their defaults, that change how a model is computed but not what. Files do not hold the defaults, so
that a configuration written before there was a choice is the same configuration.
"""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "tensor2tensor": {
        "norm": "pre",
        "coordinate_layout": "split",
        "step_coordinates": "learned",
        "scale_step_table": True,
        "halting_output": "interpolate",
        "halting_state": "evolving",
        "remainder_at_cap": False,
        "halting_bias": 1.0,
        "ponder_padding": True,
        "zero_padding": True,
        "start_id": 0,
        "output_bias": False,
        "num_target_spaces": 32,
    },
    "graves": {"norm": "post", "halting_output": "mean", "halting_state": "frozen"},
}
"""Whose choices: the paper's, the authors' code, Graves' rule."""

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"width": 128, "filter_width": 512, "num_heads": 4},
    "small": {"width": 512, "filter_width": 2048, "num_heads": 8},
    "base": {"width": 1024, "filter_width": 4096, "num_heads": 16},
    "big": {"width": 2048, "filter_width": 8192, "num_heads": 16},
}
"""Width, filter width and heads by name."""


def preset(name: str = "paper", *, size: str = "tiny") -> ModelConfig:
    """The configuration of a preset in a size; change fields of it with ``dataclasses.replace``."""
    if name not in PRESETS:
        raise _refuse("preset", name, "allowed: " + ", ".join(PRESETS))
    if size not in SIZES:
        raise _refuse("size", size, "allowed: " + ", ".join(SIZES))
    return ModelConfig.from_dict({**PRESETS[name], **SIZES[size]})
