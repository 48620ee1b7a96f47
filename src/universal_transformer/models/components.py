"""The configuration of what surrounds the recurrence, a frozen dataclass for each component. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from universal_transformer.typed import Count, DropoutRate, Positive, Range

Architecture = Literal["encoder_decoder", "language_model", "classifier", "tagger"]
ENCODERS = ("classifier", "tagger")
"""Architectures without a decoder: their targets are classes, and have no start and no end."""


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Numbers of tokens and classes, and ids with a meaning. The tokenizer and the data determine them."""

    size: Count = 0
    """Source (or only) vocabulary."""
    target_size: Count = 0
    """Target vocabulary. 0: source and target share the vocabulary and its embedding."""
    num_classes: Count = 0
    """Classes of a classifier or a tagger."""
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
    last_separator_id: Count = 0
    """If it is not 0, positions start again after each of the ids from separator_id to this one."""


@dataclass(frozen=True, kw_only=True)
class InputsConfig:
    """From ids to states."""

    kind: Literal["tokens", "facts", "frames", "patches"] = "tokens"
    """One position for each token, for each fact (a short sentence), for one or several frames (of a sound, or of
    observations), or for each square patch of a picture."""
    fact_mask_init: Literal["noise", "ones"] = "noise"
    """Initial word-position mask of facts: 1 + noise, or all ones (a bag of words)."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of the width."""
    segments: Positive = 1
    """Texts of the source, each with <end> after it; from 2 on, each has a learned segment embedding. The data
    determine it."""
    features: Count = 0
    """Numbers of a frame, or rows of pixels of a picture. The data determine it."""
    stride: Positive = 1
    """Frames that one position joins, or pixels of a side of a patch."""
    stem: Literal["linear", "convolution"] = "linear"
    """How frames or pixels are joined: by one linear map, or by convolutions of stride 2, which need a stride that is a
    power of 2."""


@dataclass(frozen=True, kw_only=True)
class OutputsConfig:
    """From states to logits, or to frames."""

    kind: Literal["tokens", "raster", "frames"] = "tokens"
    """What a decoder writes: a text, the intensities of the pixels of a picture, row by row, or frames of numbers."""
    columns: Annotated[int, Range(0, 2**16)] = 0
    """Pixels of a row of the picture that is written. The data determine it."""
    features: Count = 0
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
    """What a classifier reads: the mean over positions, the last position, or attention over the source tokens."""


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """How a model is computed: the numbers are the same."""

    halting_execution: Literal["auto", "masked"] = "auto"
    """Leave out halted positions where that is exact and saves time ("auto"), or always compute all positions."""
    activation_checkpointing: bool = False
    """Keep one state for each position and step, and recompute the rest in the backward pass: less memory, slower."""


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How long an answer may be."""

    max_new_tokens: Count = 0
    """Most tokens of an answer, <end> included. 0: the training data decide (their longest answer, with a margin)."""
    fixed_length: bool = False
    """Every answer has `max_new_tokens` tokens and no <end>, such as the pixels of a picture. The data determine it."""

    def limit(self, given: int) -> int:
        """Return how many tokens an answer to `given` tokens may have: `max_new_tokens`, or 2 · given + 10 if larger.

        The second bound is for inputs that are longer than those of training. An answer of fixed length has no such.
        """
        return self.max_new_tokens if self.fixed_length else max(self.max_new_tokens, 2 * given + 10)
