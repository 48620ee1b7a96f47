"""An example: the input and the expected output of a model as plain numbers, without torch."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

PADDING = 0
"""Padding of vocabularies that are made here, and the class of a position of a tagger that has none."""
FIRST = 3  # the id of intensity 0 of a pixel; smaller ids are padding, start and end
NO_CLASS = -100  # the class of an unknown answer: cross entropy ignores it, and no prediction equals it
ABSENT, PRESENT = -2, -1  # of each label of a text that may have several; no id of padding equals them

Item = TypeVar("Item")
Frames = NDArray[np.float32]
"""Numbers [frame, feature]."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example.

    `source` has token ids, or for stories one tuple of word ids for each fact and for the question, or finite frames of
    a sound, of observations or of a picture (its columns of pixels); it is empty for a language model. `target` has ids
    with the end id (intensities have none), a class, the tokens of a language model, or (of a tagger) a class for each
    source position, from 1 on, and 0 where a position has none, or finite frames of a sound, or `ABSENT` or `PRESENT`
    for each label of a text that may have several. It is ``()`` or `NO_CLASS` where the answer is unknown.
    """

    source: tuple[int, ...] | tuple[tuple[int, ...], ...] | Frames
    target: tuple[int, ...] | int | Frames
    group: str = ""
    """Row of an error table, such as "task 1" or "length 40"."""
    supports: tuple[int, ...] = ()
    """Indices into `source` of the supporting facts."""
    notes: tuple[str, ...] = ()
    """What was changed when the source was read, one sentence each."""
    unknown: tuple[str, ...] = ()
    """Of an input to predict: its parts that the codec does not know, as they were written, each once."""
    written: tuple[str, str] | None = field(default=None, compare=False)
    """Source and target as they were written, where answers are compared with texts; the ids may lack some words."""
    weight: float | tuple[float, ...] = 1.0
    """Of its term in the loss of training; of a tagger, of that of each position."""
    padding_id: int = PADDING
    """The id that fills its rows of ids in a batch: that of the tokenizer which made them."""


def size(example: Example) -> int:
    """Positions of an example in a batch: max(source, target), where a class, labels or a frame count as one."""
    return max(len(example.source), target_size(example))


def target_size(example: Example) -> int:
    """Tokens or frames of the target; 1 for a class or labels."""
    target = example.target
    labels = isinstance(target, tuple) and target[:1] in ((ABSENT,), (PRESENT,))
    return 1 if isinstance(target, int) or labels else len(target)


def ids_of(side: object) -> tuple[int, ...]:
    """The ids of a source or a target: of a class that one, of frames none."""
    if isinstance(side, int):
        return (side,)
    return tuple(side) if isinstance(side, Sequence) else ()


def sizes(examples: Sequence[Example]) -> list[int]:
    return [size(example) for example in examples]


def spread(examples: Sequence[Item], *, count: int) -> list[Item]:
    """`count` of the examples, one drawn from each of `count` equal parts, always the same; all if there are no more.

    Every n-th example would be no fair sample: of five questions about a story the first is the easiest.
    """
    count, drawn = min(count, len(examples)), random.Random(0)
    ends = [place * len(examples) // count for place in range(count + 1)] if count else []
    return [examples[drawn.randrange(first, end)] for first, end in pairwise(ends)]
