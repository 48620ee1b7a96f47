"""The configuration of each component of a model that is not in `nn/step_config.py`, with its rules. Needs no torch.

``rules`` of a component yields what does not fit together with the rest of a configuration.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from universal_transformer.errors import UserError
from universal_transformer.rules import Refusals, Unread
from universal_transformer.typed import Count, DropoutRate, Positive, Range

Architecture = Literal["encoder_decoder", "language_model", "classifier", "tagger"]
ENCODERS = ("classifier", "tagger")
"""Architectures without a decoder: their targets are classes, and have no start and no end."""
Writes = Literal["tokens", "frames", "classes", "labels"]
"""What a model predicts."""
NUMBERS = ("frames", "patches")
"""Kinds of inputs that are numbers in place of ids."""


def needed(value: int | None, field: str, *, by: str) -> int:
    """``value`` of a field; UserError where nothing has set it."""
    if value is None:
        raise UserError(f"{field}=None: {by}; take it from the data or set the field")
    return value


def unused(component: Any, name: str, fields: Iterable[str], needs: str) -> Refusals:
    """Each of ``fields`` that differs from its default, where it applies only to ``needs``."""
    for field in fields:
        given = getattr(component, field) != getattr(type(component), field)
        yield f"{name}.{field}", given, f"applies only to {needs}: leave it out"


def pointer_rules(config: Any, path: str) -> Refusals:
    """What a pointer needs, which the field ``path`` asks for."""
    yield path, config.inputs.kind != "tokens", 'points at a token: inputs.kind must be "tokens"'
    other = config.vocabulary.num_classes not in (None, config.vocabulary.size)
    yield "vocabulary.num_classes", other, "the classes of a pointer are the tokens of its vocabulary"


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Numbers of tokens and classes, and ids with a meaning. The tokenizer and the data determine them."""

    size: Positive | None = None
    """Source (or only) vocabulary."""
    target_size: Positive | None = None
    """Target vocabulary. None: source and target share the vocabulary and its embedding."""
    num_classes: Positive | None = None
    """Classes of a classifier or a tagger."""
    max_fact_words: Positive | None = None
    """Words of the longest fact."""
    padding_id: Count = 0
    """Token id of padding."""
    start_id: Count = 1
    """Token id before the first target token."""
    end_id: Count = 2
    """Token id that ends a target."""
    separator_id: Count | tuple[Count, ...] | None = None
    """Token id, or ids, after which source positions start from 0 again, in the next part of the source."""

    def rules(self, config: Any) -> Refusals:
        """Ids lie in their vocabularies, and ids with a meaning differ."""
        padding = self.padding_id
        ids: dict[str, int | None] = {"padding_id": padding}
        if config.decodes:
            yield "vocabulary.end_id", self.end_id == padding, "must differ from padding_id, or no target could end"
            ids |= {"start_id": self.start_id, "end_id": self.end_id}
        written = "target_size" if config.decodes and self.target_size is not None else "size"
        for name, values in ((written, ids), ("size", {"separator_id": max(self.separators, default=None)})):
            size = getattr(self, name)
            for field, value in values.items():
                beyond = size is not None and value is not None and value >= size
                yield f"vocabulary.{field}", beyond, f"vocabulary.{name}={size} ends at id {(size or 0) - 1}"
        if self.separators:
            path = "vocabulary.separator_id"
            yield path, not (config.reads and config.decodes), f"an encoder_decoder is needed: {config.architecture}"
            yield path, config.inputs.kind in NUMBERS, "numbers have no separator token"
            yield path, padding in self.separators, "must differ from padding_id"

    @property
    def separators(self) -> tuple[int, ...]:
        """The ids of all separators."""
        ids = self.separator_id
        return (ids,) if isinstance(ids, int) else ids or ()

    @property
    def written(self) -> int:
        return needed(self.target_size or self.size, "vocabulary.size", by="a model needs a vocabulary")


@dataclass(frozen=True, kw_only=True)
class InputsConfig:
    """From ids to states."""

    kind: Literal["tokens", "facts", "frames", "patches"] = "tokens"
    """One position for each token, for each fact (a short sentence), for one or several frames (of a sound, or of
    observations), or for each square patch of a picture."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of the width."""
    segments: Annotated[int, Range(1, 2)] = 1
    """Texts of the source, each with <end> after it; of two, each has a learned segment embedding. The data determine
    it."""
    features: Positive | None = None
    """Numbers of a frame, or rows of pixels of a picture. The data determine it."""
    stride: Positive = 1
    """Frames that one position joins, or pixels of a side of a patch."""
    stem: Literal["linear", "convolution"] = "linear"
    """How frames or pixels are joined: by one linear map, or by convolutions of stride 2, which need a stride that is a
    power of 2."""

    def unread(self, config: Any) -> Unread:
        """Embeddings are those of tokens that are read or written."""
        if self.kind in NUMBERS and config.writes != "tokens":
            yield "inputs.scale_embeddings", "this model embeds no tokens"
        if self.stride == 1:
            yield "inputs.stem", "applies only to inputs.stride above 1"

    def rules(self, config: Any) -> Refusals:
        """Which models read them, and how many numbers a position joins."""
        numbers, architecture = self.kind in NUMBERS, config.architecture
        facts = self.kind == "facts" and architecture != "classifier"
        yield "inputs.kind", facts, f'architecture must be "classifier", not "{architecture}"'
        yield "inputs.kind", numbers and not config.reads, "a language model reads what it writes: tokens"
        one_text = architecture != "classifier" or self.kind != "tokens"
        several = 'several texts need architecture "classifier" and inputs.kind "tokens"'
        yield "inputs.segments", self.segments > 1 and one_text, several
        if not numbers:
            yield from unused(self, "inputs", ("features", "stride", "stem"), 'inputs.kind="frames" or "patches"')
        convolves = self.stem == "convolution"
        power = "convolutions of stride 2 need a power of 2"
        yield "inputs.stride", convolves and self.stride.bit_count() != 1, power
        uneven = self.kind == "patches" and self.features is not None and self.features % self.stride > 0
        yield "inputs.stride", uneven, f"must divide the height of the pictures, inputs.features={self.features}"


@dataclass(frozen=True, kw_only=True)
class OutputsConfig:
    """From states to logits, or to frames."""

    kind: Literal["tokens", "raster", "frames", "labels"] = "tokens"
    """What a decoder writes: a text, the intensities of the pixels of a picture, row by row, or frames of numbers. Of a
    classifier, labels: each class applies or not, whatever the others do."""
    columns: Annotated[int, Range(1, 2**16)] | None = None
    """Pixels of a row of the picture that is written. The data determine it."""
    features: Positive | None = None
    """Numbers of a frame that is written. The data determine it."""
    stride: Positive = 1
    """Frames that are written at one position."""
    prenet_dropout: DropoutRate = 0.5
    """Dropout of the two layers through which a decoder reads the frame before."""
    tie_output: bool = True
    """Use the target embedding as the output matrix."""
    output_bias: bool = True
    """Add a bias to the logits."""
    pooling: Literal["mean", "last", "pointer"] = "mean"
    """What a classifier reads: the mean over positions (of two texts: both means, and how they differ), the last
    position, or attention over the source tokens."""

    def unread(self, config: Any) -> Unread:
        """Frames are read through two layers, tokens are written by a matrix, and a classifier pools."""
        if self.kind != "frames":
            yield "outputs.prenet_dropout", 'applies only to outputs.kind="frames"'
        if config.writes != "tokens":
            yield from ((f"outputs.{field}", "this model writes no tokens") for field in ("tie_output", "output_bias"))
        if config.architecture != "classifier":
            yield "outputs.pooling", f"applies only to a classifier, and this model is a {config.architecture}"

    def rules(self, config: Any) -> Refusals:
        """What pictures, frames and pointers need (decisions D17 and D19)."""
        vocabulary, one_side = config.vocabulary, not (config.reads and config.decodes)
        labels = self.kind == "labels"
        yield "outputs.kind", not labels and self.kind != "tokens" and one_side, 'needs architecture "encoder_decoder"'
        yield "outputs.kind", labels and config.architecture != "classifier", 'needs architecture "classifier"'
        yield "outputs.pooling", labels and self.pooling == "pointer", "a pointer chooses one of the tokens"
        if self.kind == "raster":
            missing = self.columns is None or vocabulary.target_size is None
            needs = "needs outputs.columns, the width, and vocabulary.target_size, for the intensities: take them from"
            yield "outputs.kind", missing, f"{needs} the data"
        else:
            yield from unused(self, "outputs", ("columns",), 'outputs.kind="raster"')
        if self.kind == "frames":
            words = vocabulary.target_size is not None
            yield "vocabulary.target_size", words, "frames that are written have no vocabulary: leave it out"
        else:
            yield from unused(self, "outputs", ("features", "stride"), 'outputs.kind="frames"')
        if config.architecture == "tagger":
            yield "outputs.pooling", self.pooling != "mean", "a tagger reads each position by itself: leave it out"
        if self.pooling == "pointer":
            yield from pointer_rules(config, "outputs.pooling")


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
    max_positions: Positive = 512
    """D3: range of random positions, and number of rows of a learned position table."""
    from_end: bool = False
    """D12: count the positions of a source from its end."""
    box_rows: Positive | None = None
    """Rows of a box of the board whose cells are the positions; a board has as many rows as a box has cells. The data
    determine it."""
    box_columns: Positive | None = None
    """Columns of a box. The data determine it."""

    @property
    def adds(self) -> bool:
        """Whether positions are added to states."""
        return self.position in ("sinusoidal", "learned", "grid")

    @property
    def rotates(self) -> bool:
        """Whether queries and keys are rotated by their positions."""
        return self.position in ("rotary", "distance")

    def unread(self, config: Any) -> Unread:
        """What only some positions and steps have."""
        if not self.adds:
            yield "coordinates.injection", f'coordinates.position="{self.position}" adds nothing to states'
        if self.position != "sinusoidal" != self.step:
            yield "coordinates.layout", "this model has no sinusoids"
        if self.position != "learned" and self.offsets == "none":
            yield "coordinates.max_positions", 'applies only to coordinates.position="learned" or to offsets'
        if self.position != "grid":
            boxes = ("coordinates.box_rows", "coordinates.box_columns")
            yield from ((path, 'applies only to coordinates.position="grid"') for path in boxes)
        if config.source_attention != config.attention:
            both = ("attention.rotary_source", "attention.source_sink")
            yield from ((path, f'coordinates.position="{self.position}" has it in any case') for path in both)

    def rules(self, config: Any) -> Refusals:
        """What positions and steps ask of the sizes, of attention and of what is read and written."""
        width, heads = config.sizes.width, config.sizes.num_heads
        from_end, position, rotary = self.from_end, self.position, config.source_attention.rotary_source
        odd = width % 2 == 1 and "sinusoidal" in (position, self.step)
        yield "sizes.width", odd, "sinusoidal coordinates come in pairs: an even width is needed"
        pairs = f"rotary coordinates rotate pairs of channels: width / num_heads must be even, not {width // heads}"
        yield "sizes.num_heads", self.rotates and width // heads % 2 == 1, pairs
        both = rotary and from_end and heads % 2 == 1
        yield "sizes.num_heads", both, "half of them count from the end: an even number is needed"
        shared = rotary and from_end and config.attention.key_value_heads is not None
        yield "attention.key_value_heads", shared, "half of the heads of keys count from the end: leave it out"
        yield "attention.rotary_source", rotary and not self.rotates, "needs coordinates.position rotary or distance"
        adds = (self.injection == "every_step" and self.adds) or self.step != "none"
        state = config.step.residual != "timed" and not adds
        yield "step.residual", state, "no coordinates are added at a step: leave it out"
        if position == "grid":
            yield "coordinates.position", config.decodes, 'needs architecture "tagger" or "classifier"'
            yield "coordinates.offsets", self.offsets != "none", "cells of a board have no other positions"
        if from_end:
            path, relative = "coordinates.from_end", position not in ("sinusoidal", "learned") and not rotary
            fits = "needs coordinates.position sinusoidal, learned or (with a decoder) distance, or rotary_source"
            yield path, relative, fits
            yield path, not config.reads, "a language model does not know where its text ends"
            separated = bool(config.vocabulary.separators)
            yield "vocabulary.separator_id", separated, "the parts have no common end: coordinates.from_end=False"
        if config.outputs.kind == "raster" or config.inputs.kind == "patches":
            other = position not in ("sinusoidal", "learned", "none")
            both_axes = "pictures need sinusoidal (of row and column), learned or none"
            yield "coordinates.position", other, both_axes
            halves = position == "sinusoidal" and width % 4 > 0
            yield "sizes.width", halves, "sinusoids of row and column come in pairs: a multiple of 4 is needed"
            yield "coordinates.from_end", from_end, "pictures have a fixed size: leave it out"
            yield "coordinates.offsets", self.offsets != "none", "rows and columns are not shifted"


POSITIONS: dict[str, str] = {
    "sinusoidal": "universal_transformer.models.positions.sinusoids:PicturePositions",
    "learned": "universal_transformer.models.positions.tables:LearnedPositions",
    "rotary": "universal_transformer.models.positions.rotary:RotaryPositions",
    "distance": "universal_transformer.models.positions.rotary:RotaryPositions",
    "grid": "universal_transformer.models.positions.tables:GridPositions",
    "none": "universal_transformer.nn.coordinates:PositionEncoder",
}
"""Name of a position encoding -> ``module:class``. See docs/extending.md for how to add one."""


TRANSITIONS: dict[str, str] = {
    "feed_forward": "universal_transformer.nn.transition:FeedForward",
    "separable_convolution": "universal_transformer.models.convolution:SeparableConvolution",
    "single_separable_convolution": "universal_transformer.models.convolution:SingleSeparableConvolution",
    "swiglu": "universal_transformer.models.gated:SwiGlu",
}
"""Name of a transition -> ``module:class``. See docs/extending.md for how to add one."""


NORMS: dict[str, str] = {
    "post": "universal_transformer.nn.block:PostNorm",
    "pre": "universal_transformer.models.norms:PreNorm",
    "deep": "universal_transformer.models.norms:DeepNorm",
    "rms": "universal_transformer.models.norms:PreRmsNorm",
}
"""Name of a norm -> ``module:class``. See docs/extending.md for how to add one."""


MOST_BLOCKS = 2**9
"""Limit of the blocks of one side: a file of a few lines would ask for millions."""
MOST_STEPS = 2**16
"""Limit of ``max_steps``: the signals of all steps are computed before the first one, and a typing error would fill
the memory."""


@dataclass(frozen=True, kw_only=True)
class DepthConfig:
    """D15: how many steps the encoder and the decoder take."""

    max_steps: Annotated[int, Range(1, MOST_STEPS)] | Literal["length"] = 6
    """T: the number of steps of a fixed depth, and the largest number of steps of a halting model. "length": the number
    of real positions of each sequence, in encoders (paper, section 4)."""
    min_steps: Positive = 1
    """The halting unit of either side decides from this step on: no position halts earlier."""
    decoder_max_steps: Annotated[int, Range(1, MOST_STEPS)] | None = None
    """``max_steps`` of the decoder. None: that of the encoder."""

    def rules(self, config: Any) -> Refusals:
        """Each side that there is has steps enough, and a sequence as many as positions only where that is known."""
        most = min(config.max_steps_of(decoder=decoder) for decoder in (False, True))
        yield "depth.min_steps", self.min_steps > most, f"at most max_steps={most}"
        if self.max_steps != "length":
            return
        decodes = config.decodes and self.decoder_max_steps is None
        fix = "set depth.decoder_max_steps to a number" if config.reads else "choose a number"
        yield "depth.max_steps", decodes, f"a decoder does not know the length of what it writes: {fix}"
        steps = "the steps are as many as positions, of any number"
        yield "step.tied", not config.step.tied, f'depth.max_steps="length" needs step.tied=True: {steps}'
        learned = config.coordinates.step == "learned"
        yield "coordinates.step", learned, f'depth.max_steps="length" needs another step signal: {steps}'
        yield "step.norm", config.step.norm == "deep", "its residual needs a number of steps: take post or pre"
        ends = 'depth.max_steps="length" needs remainder_at_cap=True, which ends each sequence at its own step'
        yield "halting.remainder_at_cap", not config.halting.remainder_at_cap, ends


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """How a model is computed: the numbers are the same."""

    halting_execution: Literal["auto", "masked"] = "auto"
    """Leave out halted positions where that is exact and saves time ("auto"), or always compute all positions."""
    activation_checkpointing: bool = False
    """Keep one state for each position and step, and recompute the rest in the backward pass: less memory, slower."""

    def rules(self, config: Any) -> Refusals:
        """A transition that is added to A of the step before needs one block for all steps, which are all kept."""
        previous = config.step.residual == "previous"
        yield "step.residual", previous and not config.step.tied, "A of the step before: needs step.tied=True"
        again = "a step is computed again without the step before: leave it out"
        yield "execution.activation_checkpointing", previous and self.activation_checkpointing, again


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How long an answer may be."""

    max_new_tokens: Positive | None = None
    """Most tokens of an answer, <end> included. None: the training data decide: their longest answer and a margin."""
    fixed_length: bool = False
    """Every answer has `max_new_tokens` tokens and no <end>, such as the pixels of a picture. The data determine it."""

    def limit(self, given: int) -> int:
        """Return how many tokens an answer to `given` tokens may have: `max_new_tokens`, or 2 · given + 10 if larger.

        The second bound is for inputs that are longer than those of training. An answer of fixed length has no such.
        """
        most = self.max_new_tokens or 0
        return most if self.fixed_length else max(most, 2 * given + 10)
