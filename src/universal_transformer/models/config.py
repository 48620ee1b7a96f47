"""The configuration of a model: a frozen dataclass for each component, checked as a whole. Needs no torch.

>>> ModelConfig(sizes=Sizes(width=512, num_heads=8), depth=DepthConfig(max_steps=8), halting=HaltingConfig(side="both"))

`nn/config.py` has the components of the recurrence, `components.py` those that surround it. This module has the whole
and the rules for combinations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from universal_transformer.errors import UserError, suggestion
from universal_transformer.models.components import (
    ENCODERS,
    Architecture,
    ExecutionConfig,
    GenerationConfig,
    InputsConfig,
    OutputsConfig,
    VocabularyConfig,
)
from universal_transformer.nn.config import (
    MOST_STEPS,
    NORMS,
    POSITIONS,
    TRANSITIONS,
    AttentionConfig,
    CoordinatesConfig,
    DepthConfig,
    HaltingConfig,
    Sizes,
    StepConfig,
    TransitionConfig,
)
from universal_transformer.rules import HALTING_RULES
from universal_transformer.rules.choices import Refusals, choices_of, refusals
from universal_transformer.typed import check, listed, typed

AnyConfig = TypeVar("AnyConfig", bound="BaseConfig")


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """What every model has, baselines included."""

    kind: ClassVar[str]
    """Name of the kind of model in files."""

    architecture: Architecture = "encoder_decoder"
    """Sequence to sequence, next token, one class for each sequence, or one class for each position."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Sizes and ids, from the data."""
    inputs: InputsConfig = InputsConfig()
    """From ids to states."""
    generation: GenerationConfig = GenerationConfig()
    """How long an answer may be."""

    def __post_init__(self) -> None:
        check(self)
        _refuse_first(self, _base_rules(self))

    @property
    def start_id(self) -> int:
        """Token id before the first target token."""
        return self.vocabulary.start_id

    @property
    def halts(self) -> bool:
        """Whether positions of any side halt."""
        return self.halts_in(decoder=False) or self.halts_in(decoder=True)

    @property
    def expects_loss(self) -> bool:
        """Whether the loss is the expectation over the step at which positions stop."""
        return False

    @property
    def unread_states(self) -> str:
        """Why no head reads the states after each step; empty where one does."""
        return ""

    @property
    def untied_steps(self) -> int:
        """The most steps of a model whose steps have blocks of their own; 0 where they share them."""
        return 0

    @property
    def max_steps(self) -> int:
        """The largest number of steps of any side. 0: the model has no steps over depth."""
        return max(self.max_steps_of(decoder=False), self.max_steps_of(decoder=True))

    @property
    def num_blocks(self) -> int:
        """Blocks with weights of their own, over all sides. 0: layers that the ranges of the fields keep few."""
        return 0

    def halts_in(self, *, decoder: bool) -> bool:  # noqa: ARG002
        """Whether positions of this side halt."""
        return False

    def max_steps_of(self, *, decoder: bool) -> int:  # noqa: ARG002
        """Return the largest number of steps of one side."""
        return 0

    def min_steps_of(self, *, decoder: bool) -> int:  # noqa: ARG002
        """Return the first step at which positions of one side can halt."""
        return 0

    def by_length(self, *, decoder: bool) -> bool:  # noqa: ARG002
        """Whether each sequence of this side makes as many steps as it has positions, or at most as many."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls: type[AnyConfig], fields: dict[str, Any], *, where: str = "model configuration") -> AnyConfig:
        """Undo `to_dict`; a missing, unknown or wrongly typed field is a UserError that names it."""
        named = {name: value for name, value in fields.items() if name != "kind"}
        config: AnyConfig = typed(named, cls, where=where)
        return config


@dataclass(frozen=True, kw_only=True)
class ModelConfig(BaseConfig):
    """Every choice of a Universal Transformer or a Transformer. A UserError names the field, its value and the rule."""

    kind: ClassVar[str] = "universal_transformer"
    builder: ClassVar[str] = "universal_transformer.models.depth:RecurrenceBuilder"
    """What builds the recurrences: ``module:class``."""

    outputs: OutputsConfig = OutputsConfig()
    """From states to logits, or to frames."""
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
    execution: ExecutionConfig = ExecutionConfig()
    """How it is computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_first(self, self.rules())

    def rules(self) -> Refusals:
        """The rules for combinations of fields."""
        return _rules(self)

    @property
    def sides(self) -> tuple[bool, ...]:
        """Whether each side is a decoder."""
        return (False, True) if self.architecture == "encoder_decoder" else (self.architecture == "language_model",)

    @property
    def untied_steps(self) -> int:
        """The most steps of a model whose steps have blocks of their own; 0 where they share them."""
        sides = [self.max_steps_of(decoder=decoder) for decoder in (False, True)]
        return 0 if self.step.tied else min(sides)

    @property
    def num_blocks(self) -> int:
        """Blocks with weights of their own, over all sides."""
        return sum(
            self.step.blocks * (1 if self.step.tied else self.max_steps_of(decoder=decoder)) for decoder in self.sides
        )

    def halts_in(self, *, decoder: bool) -> bool:
        """Whether positions of this side halt."""
        return self.halting.side in ("both", "decoder" if decoder else "encoder")

    def max_steps_of(self, *, decoder: bool) -> int:
        """Return the largest number of steps of one side."""
        steps = (decoder and self.depth.decoder_max_steps) or self.depth.max_steps
        return MOST_STEPS if steps == "length" else steps

    def by_length(self, *, decoder: bool) -> bool:
        """Whether each sequence of this side makes as many steps as it has positions, or at most as many (D15)."""
        return not decoder and self.depth.max_steps == "length"

    def min_steps_of(self, *, decoder: bool) -> int:
        """Return the first step at which positions of one side can halt."""
        return (decoder and self.depth.decoder_min_steps) or self.depth.min_steps

    def line_of(self, *, decoder: bool) -> int:
        """Return how many positions a line of a picture has on one side; 0 where positions have one dimension (D17)."""
        if decoder:
            return self.outputs.columns if self.outputs.kind == "raster" else 0
        return self.inputs.features // self.inputs.stride if self.inputs.kind == "patches" else 0

    @property
    def source_attention(self) -> AttentionConfig:
        """Return `attention` with what the position "distance" means for attention to a source (D13)."""
        if self.coordinates.position != "distance" or self.architecture != "encoder_decoder":
            return self.attention
        return dataclasses.replace(self.attention, rotary_source=True, source_sink=True)

    @property
    def looks_ahead(self) -> bool:
        """Whether a decoder of this configuration depends on later target positions."""
        sequence = self.halts_in(decoder=True) and self.halting.scope == "sequence"
        return self.architecture not in ENCODERS and sequence

    @property
    def ponders_padding(self) -> bool:
        """Whether padding takes steps like any other position."""
        return False

    @property
    def interaction(self) -> str:
        """How positions interact besides attention, so that processes cannot share a sequence; empty if they can."""
        if self.transition.kind == "separable_convolution":
            return "transition.kind 'separable_convolution' reads neighbours, which another process may have"
        return ""

    @property
    def unread_states(self) -> str:
        """Why no head reads the states after each step; empty where one does."""
        return "this model writes frames, which have no probabilities" if self.outputs.kind == "frames" else ""

    @property
    def expects_loss(self) -> bool:
        """Whether the loss is the expectation over the step at which positions stop (PonderNet)."""
        return self.halts and choices_of(self.halting).expects_loss


def refusal(field: str, value: object, remedy: str) -> UserError:
    """Return the error for a value that does not fit the other fields."""
    return UserError(f"{field}={value!r}: {remedy}")


def _refuse_first(config: BaseConfig, rules: Refusals) -> None:
    for path, wrong, remedy in rules:
        if wrong:
            raise refusal(path, attrgetter(path)(config), remedy)


def _base_rules(config: BaseConfig) -> Refusals:
    vocabulary, architecture = config.vocabulary, config.architecture
    facts, size = config.inputs.kind == "facts" and architecture != "classifier", vocabulary.size
    yield "inputs.kind", facts, f'architecture must be "classifier", not "{architecture}"'
    one_text = architecture != "classifier" or config.inputs.kind != "tokens"
    yield from _number_rules(config)
    segments = config.inputs.segments > 1 and one_text
    yield "inputs.segments", segments, 'several texts need architecture "classifier" and inputs.kind "tokens"'
    ids, name = {"vocabulary.padding_id": vocabulary.padding_id}, "vocabulary.size"
    if architecture not in ENCODERS:
        same = vocabulary.end_id == vocabulary.padding_id
        yield "vocabulary.end_id", same, "must differ from padding_id, or no target could end"
        ids |= {"start_id": config.start_id, "vocabulary.end_id": vocabulary.end_id}
        if vocabulary.target_size:
            size, name = vocabulary.target_size, "vocabulary.target_size"
    for path, value in ids.items():
        yield path, 0 < size <= value, f"{name}={size} ends at id {size - 1}"


def _number_rules(config: BaseConfig) -> Refusals:
    """Choices for frames and patches."""
    inputs, vocabulary = config.inputs, config.vocabulary
    numbers, stride = inputs.kind in ("frames", "patches"), inputs.stride
    language_model = config.architecture == "language_model"
    yield "inputs.kind", numbers and language_model, "a language model reads what it writes: tokens"
    unused = 'applies only to inputs.kind "frames" or "patches": leave it out'
    yield "inputs.features", inputs.features > 0 and not numbers, unused
    yield "inputs.stride", stride > 1 and not numbers, 'needs inputs.kind "frames" or "patches"'
    yield "vocabulary.separator_id", vocabulary.separator_id > 0 and numbers, "numbers have no separator token"
    convolves = inputs.stem == "convolution"
    yield "inputs.stem", convolves and not numbers, 'needs inputs.kind "frames" or "patches"'
    yield "inputs.stride", convolves and stride.bit_count() != 1, "convolutions of stride 2 need a power of 2"
    uneven = inputs.kind == "patches" and inputs.features % stride > 0
    yield "inputs.stride", uneven, f"must divide the height of the pictures, inputs.features={inputs.features}"


def _picture_rules(config: ModelConfig) -> Refusals:
    """Choices for a side that reads or writes pictures (D17)."""
    outputs, position = config.outputs, config.coordinates.position
    raster = outputs.kind == "raster"
    yield "outputs.kind", raster and config.architecture != "encoder_decoder", 'needs architecture "encoder_decoder"'
    missing = not (outputs.columns and config.vocabulary.target_size)
    remedy = (
        "needs outputs.columns, the width, and vocabulary.target_size, for the intensities: take them from the data"
    )
    yield "outputs.kind", raster and missing, remedy
    yield "outputs.columns", outputs.columns > 0 and not raster, 'is the width of a raster: outputs.kind="raster"'
    if raster or config.inputs.kind == "patches":
        other = position not in ("sinusoidal", "learned", "none")
        yield "coordinates.position", other, "pictures need sinusoidal (of row and column), learned or none"
        pairs = position == "sinusoidal" and config.sizes.width % 4 > 0
        yield "sizes.width", pairs, "sinusoids of row and column come in pairs: a multiple of 4 is needed"
        yield "coordinates.from_end", config.coordinates.from_end, "pictures have a fixed size: leave it out"
        yield "coordinates.offsets", config.coordinates.offsets != "none", "rows and columns are not shifted"


def _frame_rules(config: ModelConfig) -> Refusals:
    """Choices for a decoder that writes frames (D19)."""
    outputs = config.outputs
    if outputs.kind != "frames":
        remedy = 'applies only to outputs.kind="frames"'
        yield "outputs.features", outputs.features > 0, remedy
        yield "outputs.stride", outputs.stride > 1, remedy
        return
    yield "outputs.kind", config.architecture != "encoder_decoder", 'needs architecture "encoder_decoder"'
    tokens = config.vocabulary.target_size > 0
    yield "vocabulary.target_size", tokens, "frames that are written have no vocabulary: leave it out"


def _rules(config: ModelConfig) -> Refusals:
    chosen = config.coordinates.position, config.step.norm, config.transition.kind, config.halting.rule
    paths = "coordinates.position", "step.norm", "transition.kind", "halting.rule"
    for path, name, members in zip(paths, chosen, (POSITIONS, NORMS, TRANSITIONS, HALTING_RULES), strict=True):
        yield path, name not in members, f"allowed: {listed(members)}{suggestion(name, members)}"
    yield from _size_rules(config)
    yield from _side_rules(config)
    yield from _length_rules(config)
    yield from _source_rules(config)
    yield from _position_rules(config)
    yield from _picture_rules(config)
    yield from _frame_rules(config)
    pointer, tokens = config.outputs.pooling == "pointer", config.inputs.kind == "tokens"
    classes = config.vocabulary.num_classes not in (0, config.vocabulary.size)
    if config.halts:
        yield from refusals(config)
    yield "outputs.pooling", pointer and not tokens, 'points at a token: inputs.kind must be "tokens"'
    every = config.architecture == "tagger" and config.outputs.pooling != "mean"
    yield "outputs.pooling", every, "a tagger reads each position by itself: leave it out"
    words = "the classes of a pointer are the tokens of its vocabulary"
    yield "vocabulary.num_classes", pointer and classes, words
    ahead = "lets a causal decoder depend on later tokens: use it with a classifier"
    yield "halting.scope", config.looks_ahead, ahead


def _size_rules(config: ModelConfig) -> Refusals:
    width, heads, coordinates = config.sizes.width, config.sizes.num_heads, config.coordinates
    allowed = [n for n in range(1, min(width, 1024) + 1) if width % n == 0]
    sinusoids = "sinusoidal" in (coordinates.position, coordinates.step) or coordinates.from_end
    odd, odd_head = width % 2 == 1, width // heads % 2 == 1 and coordinates.rotates
    pairs = f"rotary coordinates rotate pairs of channels: width / num_heads must be even, not {width // heads}"
    yield "sizes.num_heads", width % heads != 0, f"must divide width={width}: one of {allowed}"
    yield "sizes.width", odd and sinusoids, "sinusoidal coordinates come in pairs: an even width is needed"
    yield "sizes.num_heads", odd_head, pairs


def _side_rules(config: ModelConfig) -> Refusals:
    """Choices for a side that the architecture does not have, and a `min_steps` above `max_steps`."""
    architecture, depth = config.architecture, config.depth
    missing = {"language_model": "encoder"}.get(architecture, "decoder" if architecture in ENCODERS else "")
    yield "halting.side", config.halting.side == missing, f"a {architecture} has no {missing}"
    for name, value in (("max_steps", depth.decoder_max_steps), ("min_steps", depth.decoder_min_steps)):
        wrong = value > 0 and missing != ""
        yield f"depth.decoder_{name}", wrong, f"a {architecture} has one side: set depth.{name}"
    for decoder in (False, True):
        least, most = config.min_steps_of(decoder=decoder), config.max_steps_of(decoder=decoder)
        side = "decoder_" if decoder and depth.decoder_min_steps else ""
        yield f"depth.{side}min_steps", least > most, f"at most max_steps={most}"


def _length_rules(config: ModelConfig) -> Refusals:
    """Choices that do not fit as many steps as a sequence has positions (D15)."""
    chosen = config.depth.max_steps == "length"
    decodes = config.architecture == "language_model" or (
        config.architecture == "encoder_decoder" and not config.depth.decoder_max_steps
    )
    fix = "choose a number" if config.architecture == "language_model" else "set depth.decoder_max_steps to a number"
    yield "depth.max_steps", chosen and decodes, f"a decoder does not know the length of what it writes: {fix}"
    steps = "the steps are as many as positions, of any number"
    yield "step.tied", chosen and not config.step.tied, f'depth.max_steps="length" needs step.tied=True: {steps}'
    learned = config.coordinates.step == "learned"
    yield "coordinates.step", chosen and learned, f'depth.max_steps="length" needs another step signal: {steps}'
    yield "step.norm", chosen and config.step.norm == "deep", "its residual needs a number of steps: take post or pre"
    yield (
        "halting.remainder_at_cap",
        chosen and not config.halting.remainder_at_cap,
        'depth.max_steps="length" needs remainder_at_cap=True, which ends each sequence at its own step',
    )


def _source_rules(config: ModelConfig) -> Refusals:
    """Choices for attention to the source that need another architecture or other coordinates."""
    rotary, from_end = config.source_attention.rotary_source, config.coordinates.from_end
    separator, last = config.vocabulary.separator_id, config.vocabulary.last_separator_id
    needed = f"an encoder_decoder is needed, not a {config.architecture}"
    one_side, size = config.architecture != "encoder_decoder", config.vocabulary.size
    yield "attention.rotary_source", one_side and config.attention.rotary_source, needed
    yield "attention.source_sink", one_side and config.attention.source_sink, needed
    yield "vocabulary.separator_id", one_side and separator > 0, needed
    unlike = rotary and not config.coordinates.rotates
    yield "attention.rotary_source", unlike, "needs coordinates.position rotary or distance"
    odd = rotary and from_end and config.sizes.num_heads % 2 == 1
    yield "sizes.num_heads", odd, "half of them count from the end: an even number is needed"
    if separator:
        path = "vocabulary.separator_id"
        yield path, from_end, "the parts have no common end: coordinates.from_end=False"
        yield path, separator == config.vocabulary.padding_id, "must differ from padding_id"
        yield path, 0 < size <= separator, f"vocabulary.size={size} ends at id {size - 1}"
    if last:
        path = "vocabulary.last_separator_id"
        yield path, not 0 < separator <= last, f"must be at least vocabulary.separator_id={separator}"
        yield path, separator <= config.vocabulary.padding_id <= last, "padding_id must not be one of them"
        yield path, 0 < size <= last, f"vocabulary.size={size} ends at id {size - 1}"


def _position_rules(config: ModelConfig) -> Refusals:
    chosen = config.coordinates
    every_step, absolute = chosen.injection == "every_step", chosen.position in ("sinusoidal", "learned")
    state, adds = config.step.residual == "state", (every_step and chosen.adds) or chosen.step != "none"
    yield "step.residual", state and not adds, "no coordinates are added at a step: leave it out"
    if chosen.position == "grid":
        path = "coordinates.position"
        yield path, config.architecture not in ENCODERS, 'needs architecture "tagger" or "classifier"'
        yield "coordinates.offsets", chosen.offsets != "none", "cells of a board have no other positions"
    if chosen.from_end:
        path, relative = "coordinates.from_end", not absolute and not config.source_attention.rotary_source
        yield (
            path,
            relative,
            "needs coordinates.position sinusoidal, learned or (with a decoder) distance, or rotary_source",
        )
        language_model = config.architecture == "language_model"
        yield path, language_model, "a language model does not know where its text ends"
