"""The configuration of a model: a frozen dataclass for each component, checked as a whole. Needs no torch.

>>> ModelConfig(sizes=Sizes(width=512, num_heads=8), depth=DepthConfig(max_steps=8), halting=HaltingConfig(side="both"))

`nn/config.py` has the components of the recurrence. This module adds what surrounds it and the rules for combinations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from universal_transformer.errors import UserError
from universal_transformer.models.earlier import nested
from universal_transformer.nn.config import (
    HALTING_RULES,
    TRANSITIONS,
    AttentionConfig,
    CoordinatesConfig,
    DepthConfig,
    HaltingConfig,
    Sizes,
    StepConfig,
    Tensor2TensorConfig,
    TransitionConfig,
)
from universal_transformer.typed import Count, check, leaves, listed, typed

Architecture = Literal["encoder_decoder", "language_model", "classifier"]
AnyConfig = TypeVar("AnyConfig", bound="BaseConfig")


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Numbers of tokens and classes, and ids with a meaning. The tokenizer and the data determine them."""

    size: Count = 0
    """Source (or only) vocabulary."""
    target_size: Count = 0
    """Target vocabulary. 0: source and target share the vocabulary and its embedding."""
    num_classes: Count = 0
    """Classes of a classifier."""
    max_fact_words: Count = 0
    """Words of the longest fact."""
    padding_id: Count = 0
    """Token id of padding."""
    start_id: Count = 1
    """Token id before the first target token."""
    end_id: Count = 2
    """Token id that ends a target."""
    separator_id: Count = 0
    """Token id after which source positions start from 0 again, in the next part of the source. 0: none."""


@dataclass(frozen=True, kw_only=True)
class InputsConfig:
    """From ids to states."""

    kind: Literal["tokens", "facts"] = "tokens"
    """One position for each token, or one position for each fact (a short sentence)."""
    fact_mask_init: Literal["noise", "ones"] = "noise"
    """Initial word-position mask of facts: 1 + noise, or all ones (a bag of words)."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of the width."""


@dataclass(frozen=True, kw_only=True)
class OutputsConfig:
    """From states to logits."""

    tie_output: bool = True
    """Use the target embedding as the output matrix."""
    output_bias: bool = True
    """Add a bias to the logits."""
    pooling: Literal["mean", "last", "pointer"] = "mean"
    """What a classifier reads: the mean over positions, the last position, or attention over the source tokens."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """How a model is computed: the numbers are the same. A file contains only values that are not the default."""

    halting_execution: Literal["auto", "masked"] = "auto"
    """Leave out halted positions where that is exact and saves time ("auto"), or always compute all positions."""
    activation_checkpointing: bool = False
    """Keep one state for each position and step, and recompute the rest in the backward pass: less memory, slower."""


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """What every model has, baselines included."""

    kind: ClassVar[str]
    """Name of the kind of model in files."""
    halts: ClassVar[bool] = False
    max_steps: ClassVar[int] = 0
    """0: the model has no steps over depth."""

    architecture: Architecture = "encoder_decoder"
    """Sequence to sequence, next token, or one class for each sequence."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Sizes and ids, from the data."""
    inputs: InputsConfig = InputsConfig()
    """From ids to states."""

    def __post_init__(self) -> None:
        check(self)
        if self.inputs.kind == "facts" and self.architecture != "classifier":
            raise refusal(
                "inputs.kind", "facts", f'architecture must be "classifier", not "{self.architecture}"'
            )
        self._check_ids()

    @property
    def start_id(self) -> int:
        """Token id before the first target token."""
        return self.vocabulary.start_id

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(
        cls: type[AnyConfig], fields: dict[str, Any], *, where: str = "model configuration"
    ) -> AnyConfig:
        """Return the inverse of `to_dict`, also for files of earlier versions. Missing fields have their defaults."""
        named = {name: value for name, value in fields.items() if name != "kind"}
        config: AnyConfig = typed(nested(named, paths=leaves(cls)), cls, where=where, partial=True)
        return config

    def _check_ids(self) -> None:
        vocabulary = self.vocabulary
        ids, size, name = {"padding_id": vocabulary.padding_id}, vocabulary.size, "size"
        if self.architecture != "classifier":
            ids |= {"start_id": self.start_id, "end_id": vocabulary.end_id}
            if vocabulary.target_size:
                size, name = vocabulary.target_size, "target_size"
            if vocabulary.end_id == vocabulary.padding_id:
                raise refusal(
                    "vocabulary.end_id",
                    vocabulary.end_id,
                    "must differ from padding_id, or no target could end",
                )
        for field, value in ids.items():
            if size and value >= size:
                raise refusal(f"vocabulary.{field}", value, f"vocabulary.{name}={size} ends at id {size - 1}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(BaseConfig):
    """Every choice of a Universal Transformer or a Transformer. A UserError names the field, its value and the rule."""

    kind: ClassVar[str] = "universal_transformer"

    outputs: OutputsConfig = OutputsConfig()
    """From states to logits."""
    sizes: Sizes = Sizes()
    """Channels and heads."""
    coordinates: CoordinatesConfig = CoordinatesConfig()
    """How positions and steps are encoded."""
    attention: AttentionConfig = AttentionConfig()
    """Multi-head attention."""
    transition: TransitionConfig = TransitionConfig()
    """The transition function."""
    step: StepConfig = StepConfig()
    """What one depth step consists of."""
    depth: DepthConfig = DepthConfig()
    """How many steps there are."""
    halting: HaltingConfig = HaltingConfig()
    """Dynamic halting."""
    tensor2tensor: Tensor2TensorConfig = Tensor2TensorConfig()
    """Choices for official checkpoints only."""
    execution: ExecutionConfig = ExecutionConfig()
    """How it is computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_names(self)
        _check_sizes(self)
        _check_sides(self)
        _check_source(self)
        _check_positions(self)
        _check_outputs(self)
        _check_look_ahead(self)

    @property
    def start_id(self) -> int:
        """Token id before the first target token."""
        padding = self.tensor2tensor.start_is_padding
        return self.vocabulary.padding_id if padding else self.vocabulary.start_id

    @property
    def halts(self) -> bool:  # type: ignore[override]
        """Whether positions of any side halt."""
        return self.halting.side != "none"

    @property
    def max_steps(self) -> int:  # type: ignore[override]
        """The largest number of steps of any side."""
        return max(self.depth.max_steps, self.depth.decoder_max_steps)

    def halts_in(self, *, decoder: bool) -> bool:
        """Whether positions of this side halt."""
        return self.halting.side in ("both", "decoder" if decoder else "encoder")

    def max_steps_of(self, *, decoder: bool) -> int:
        """Return the largest number of steps of one side."""
        return (decoder and self.depth.decoder_max_steps) or self.depth.max_steps

    def min_steps_of(self, *, decoder: bool) -> int:
        """Return the first step at which positions of one side can halt."""
        return (decoder and self.depth.decoder_min_steps) or self.depth.min_steps

    @property
    def looks_ahead(self) -> bool:
        """Whether a decoder of this configuration depends on later target positions."""
        sequence = self.halts_in(decoder=True) and self.halting.scope == "sequence"
        return self.architecture != "classifier" and (sequence or self.tensor2tensor.shift_positions_by_step)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, those of `execution` only where they are not the default."""
        fields = dataclasses.asdict(self)
        default = dataclasses.asdict(ExecutionConfig())
        chosen = {name: value for name, value in fields.pop("execution").items() if value != default[name]}
        return fields | ({"execution": chosen} if chosen else {})


def refusal(field: str, value: object, remedy: str) -> UserError:
    """Return the error for a value that does not fit the other fields."""
    return UserError(f"{field}={value!r}: {remedy}")


def _check_names(config: ModelConfig) -> None:
    for field, value, known in (
        ("transition.kind", config.transition.kind, TRANSITIONS),
        ("halting.rule", config.halting.rule, HALTING_RULES),
    ):
        if value not in known:
            raise refusal(field, value, f"allowed: {listed(known)}")


def _check_sizes(config: ModelConfig) -> None:
    width, heads = config.sizes.width, config.sizes.num_heads
    if width % heads:
        allowed = [n for n in range(1, min(width, 1024) + 1) if width % n == 0]
        raise refusal("sizes.num_heads", heads, f"must divide width={width}: one of {allowed}")
    coordinates = config.coordinates
    if width % 2 and ("sinusoidal" in (coordinates.position, coordinates.step) or coordinates.from_end):
        raise refusal("sizes.width", width, "sinusoidal coordinates come in pairs: an even width is needed")
    if coordinates.position == "rotary" and (width // heads) % 2:
        raise refusal(
            "sizes.num_heads",
            heads,
            f"rotary coordinates rotate pairs of channels: width / num_heads must be even, not {width // heads}",
        )


def _check_sides(config: ModelConfig) -> None:
    """Refuse choices for a side that the architecture does not have, and a `min_steps` above `max_steps`."""
    missing = {"classifier": "decoder", "language_model": "encoder"}.get(config.architecture, "")
    if config.halting.side == missing:
        raise refusal("halting.side", missing, f"a {config.architecture} has no {missing}")
    for field in ("decoder_max_steps", "decoder_min_steps"):
        if getattr(config.depth, field) and missing:
            other = field.removeprefix("decoder_")
            raise refusal(
                f"depth.{field}",
                getattr(config.depth, field),
                f"a {config.architecture} has one side: set depth.{other}",
            )
    for decoder in (False, True):
        least, most = config.min_steps_of(decoder=decoder), config.max_steps_of(decoder=decoder)
        if least > most:
            side = "decoder_" if decoder and config.depth.decoder_min_steps else ""
            raise refusal(f"depth.{side}min_steps", least, f"at most max_steps={most}")


def _check_source(config: ModelConfig) -> None:
    """Refuse choices for attention to the source that need another architecture or other coordinates."""
    attention, coordinates, vocabulary = config.attention, config.coordinates, config.vocabulary
    separator = vocabulary.separator_id
    for field, value in (
        ("attention.rotary_source", attention.rotary_source),
        ("attention.source_sink", attention.source_sink),
        ("vocabulary.separator_id", separator),
    ):
        if value and config.architecture != "encoder_decoder":
            raise refusal(field, value, f"an encoder_decoder is needed, not a {config.architecture}")
    if attention.rotary_source and coordinates.position != "rotary":
        raise refusal("attention.rotary_source", True, "needs coordinates.position rotary")
    if attention.rotary_source and coordinates.from_end and config.sizes.num_heads % 2:
        raise refusal(
            "sizes.num_heads",
            config.sizes.num_heads,
            "half of them count from the end: an even number is needed",
        )
    if separator and coordinates.from_end:
        raise refusal(
            "vocabulary.separator_id", separator, "the parts have no common end: coordinates.from_end=False"
        )
    if separator and separator == vocabulary.padding_id:
        raise refusal("vocabulary.separator_id", separator, "must differ from padding_id")
    if vocabulary.size and separator >= vocabulary.size:
        raise refusal(
            "vocabulary.separator_id",
            separator,
            f"vocabulary.size={vocabulary.size} ends at id {vocabulary.size - 1}",
        )


def _check_positions(config: ModelConfig) -> None:
    coordinates, shifted = config.coordinates, config.tensor2tensor.shift_positions_by_step
    every_step = coordinates.injection == "every_step"
    plain = config.tensor2tensor.plain_layers_before
    if shifted and not (every_step and coordinates.position in ("sinusoidal", "learned")):
        raise refusal(
            "tensor2tensor.shift_positions_by_step",
            True,
            "shifts the signal that is added at every step: needs coordinates.position sinusoidal or learned, and "
            'coordinates.injection="every_step"',
        )
    if plain and every_step and coordinates.position == "learned":
        raise refusal(
            "tensor2tensor.plain_layers_before",
            plain,
            "layers before the recurrence do not get positions that are learned inside it: needs "
            'coordinates.injection="input", or another coordinates.position',
        )
    if not coordinates.from_end:
        return
    if coordinates.position not in ("sinusoidal", "learned") and not config.attention.rotary_source:
        raise refusal(
            "coordinates.from_end", True, "needs coordinates.position sinusoidal or learned, or rotary_source"
        )
    if shifted:
        raise refusal(
            "coordinates.from_end",
            True,
            "needs shift_positions_by_step=False: shifted positions have no fixed end",
        )
    if config.architecture == "language_model":
        raise refusal("coordinates.from_end", True, "a language model does not know where its text ends")


def _check_outputs(config: ModelConfig) -> None:
    if config.outputs.pooling != "pointer":
        return
    if config.inputs.kind == "facts":
        raise refusal("outputs.pooling", "pointer", 'points at a token: inputs.kind must be "tokens"')
    classes = config.vocabulary.num_classes
    if classes not in (0, config.vocabulary.size):
        raise refusal(
            "vocabulary.num_classes", classes, "the classes of a pointer are the tokens of its vocabulary"
        )


def _check_look_ahead(config: ModelConfig) -> None:
    if config.looks_ahead and not config.tensor2tensor.allow_look_ahead:
        shifted = config.tensor2tensor.shift_positions_by_step
        field, value = (
            ("tensor2tensor.shift_positions_by_step", True) if shifted else ("halting.scope", "sequence")
        )
        raise refusal(
            field,
            value,
            "lets a causal decoder depend on the length or the content of later tokens: use it with a classifier, or "
            "set tensor2tensor.allow_look_ahead to score official checkpoints that were trained so",
        )
