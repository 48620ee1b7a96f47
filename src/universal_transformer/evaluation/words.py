"""Steps of tokens to steps of the words that a user wrote."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from universal_transformer.data.example import Example, has_numbers
from universal_transformer.models.config import BaseConfig
from universal_transformer.models.frames import features_of
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Prediction, Token


def with_words(prediction: Prediction, *, codec: Codec[Any, Any], line: str, example: Example) -> Prediction:
    """Return a prediction with the words of the `line` that it answers, those that the codec does not know, and answers
    that repeat words of the line.
    """
    words = words_of(prediction.tokens, codec=codec, line=line)
    prediction = dataclasses.replace(prediction, words=words, unknown=list(example.unknown))
    target = codec.target
    choices = [(target.completed(text, line), score) for text, score in prediction.choices]
    return dataclasses.replace(prediction, text=target.completed(prediction.text, line), choices=choices)


def source_names(example: Example, *, codec: Codec[Any, Any], config: BaseConfig) -> list[str]:
    """Return a label for each source position: of frames that of the first that it joins, of patches a number."""
    if not has_numbers(example):
        return codec.words(example)
    stride, frames = config.inputs.stride, len(example.source)
    if config.inputs.kind == "frames":
        return codec.words(example)[::stride]
    return list(map(str, range(-(-frames // stride) * (features_of(config) // stride))))


def words_of(tokens: Sequence[Token], *, codec: Codec[Any, Any], line: str) -> list[Token]:
    """Return the words of `line`, what stands between blanks, each with the mean steps of its tokens.

    The tokens themselves are returned where the codec does not say where they stand: its tokens are words or facts.
    """
    spans = codec.source.spans(line)
    if len(tokens) != len(spans):
        return list(tokens)
    words = list(re.finditer(r"\S+", line))
    word_at = {place: number for number, word in enumerate(words) for place in range(*word.span())}
    steps: list[list[float]] = [[] for _ in words]
    for token, span in zip(tokens, spans, strict=True):
        for number in {word_at[place] for place in range(*span) if place in word_at}:
            steps[number] += [] if token.steps is None else [token.steps]
    return [
        Token(word.group(), sum(taken) / len(taken) if taken else None)
        for word, taken in zip(words, steps, strict=True)
    ]
