"""LAMBADA by a language model on parts of words: byte pairs, in which every last word can be said (table 3).

A word is the same pieces wherever it stands: a blank before it belongs to its first piece, and no other piece has one.
Training and the words of passages are those of `LambadaData`; `paper.last_word_pieces` scores the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from paper.tasks.lambada import read_corpus
from paper.tasks.novels import BETWEEN, Novels
from paper.tasks.treebank import split_words
from universal_transformer.data.example import Example, spread
from universal_transformer.data.tokenizer import BLANK, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import RunningText
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.tasks.text import blocks
from universal_transformer.typed import AtLeastTwo, Positive, check

LAST_WORD_PIECES = "last_word_pieces"
"""The metric."""
_CHUNK, _EVERY = 1000, 8
"""Pieces are learned from one in 8 runs of 1,000 words of the novels."""


@dataclass(frozen=True)
class Pieces(RunningText):
    """The text of a language model on parts of words: a line is cut into words as LAMBADA's passages are."""

    kind: ClassVar[str] = "pieces"

    def read_line(self, line: str, *, where: str) -> Example:
        return super().read_line("".join(BLANK + word for word in split_words(line)), where=where)

    def of_words(self, words: Sequence[str]) -> tuple[int, ...]:
        """The pieces of words, each of which has a blank before it."""
        return tuple(self.tokenizer.encode("".join(BLANK + word for word in words)))


@dataclass(frozen=True, kw_only=True)
class PiecesData:
    """A language model on parts of the words of novels, tested on the last words of LAMBADA's passages."""

    sides: ClassVar[Sides] = (Pieces, Pieces)
    data_dir: str = ""
    """Folder with the data sets; empty: that of the environment variable UT_DATA, or else "data"."""
    vocabulary_size: int = 8000
    """At most so many different byte pairs, learned from an eighth of the novels."""
    block_length: AtLeastTwo = 160
    """Pieces of one training example; a piece sees those before it in its block."""
    validation_passages: Positive = 500
    """Passages of the development set, evenly spread, on whose pieces the best weights are chosen."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice("bpe", self.vocabulary_size, lower_case=False)

    def load(self, saved: Saved | None = None) -> Task:
        """Read novels and passages; byte pairs are learned from the novels."""
        import paper.last_word_pieces  # noqa: F401  registers the metric; it needs torch, which recipes do not

        passages, novels, about = read_corpus(self.data_dir)
        codec: Codec[Pieces, Pieces] = saved.codec if saved else self._learn(novels)
        tests = {
            name: tuple(Example(source=(), target=codec.target.of_words(words)) for words in found)
            for name, found in passages.items()
        }
        tokenizer = codec.target.tokenizer
        return Task(
            name="lambada pieces",
            codec=codec,
            train=blocks(piece_ids(novels, tokenizer), length=self.block_length, padding_id=tokenizer.padding_id),
            validation=spread(tests["development"], count=self.validation_passages),
            test=tests,
            metric=LAST_WORD_PIECES,
            notes=(
                *about,
                f"the last word is predicted as a sequence of {len(tokenizer):,} kinds of byte pairs; its probability "
                "is that of its pieces, of which the first begins a word, and that another word begins after them; it "
                "is right if greedy choice writes these pieces and then begins another word",
                f"weights chosen by all pieces of {self.validation_passages:,} development passages",
            ),
        )

    def _learn(self, novels: Novels) -> Codec[Pieces, Pieces]:
        tokenizer = Tokenizer.train(_texts(novels), kind="bpe", vocabulary_size=self.vocabulary_size)
        return Codec.shared(Pieces(tokenizer, self.block_length))


def _texts(novels: Novels) -> Iterator[str]:
    for first in range(0, len(novels.tokens), _CHUNK * _EVERY):
        words = (novels.types[index] for index in novels.tokens[first : first + _CHUNK].tolist() if index != BETWEEN)
        yield "".join(BLANK + word for word in words)


def piece_ids(novels: Novels, tokenizer: Tokenizer) -> np.ndarray:
    """The pieces of the novels' words, each novel with an end id."""
    words = tokenizer.encode_many([BLANK + word for word in novels.types[BETWEEN + 1 :]])
    pieces = [[tokenizer.end_id], *words]  # by the number of a word, of which `BETWEEN` is the first
    lengths = np.array([len(ids) for ids in pieces])
    firsts = np.cumsum(lengths) - lengths
    counts = lengths[novels.tokens]
    places = np.repeat(firsts[novels.tokens] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.concatenate([np.array(ids, dtype=np.int32) for ids in pieces])[places]
