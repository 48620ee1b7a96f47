"""English text by whole words, of a vocabulary with a limited size.

Ids: 0 padding, 1 start, 2 end, 3 a word that is not in the vocabulary, then the words, most frequent first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from paper.tasks.treebank import CLOSERS, SENTENCE_ENDS, split_words
from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.data.tokenizer import END, SPECIAL, START, UNKNOWN
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.sides.side import Side
from universal_transformer.typed import Range

FIRST_WORD = len(SPECIAL)
MAX_VOCABULARY = 1_000_000
MAX_PROMPT = 4096  # words
VocabularySize = Annotated[int, Range(FIRST_WORD + 1, MAX_VOCABULARY)]
"""A number of words, special ones included."""


@dataclass(frozen=True)
class Vocabulary:
    """Words by id; `words` holds those from id 4 on."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, counts: Mapping[str, int], *, size: int, least: int = 1) -> Vocabulary:
        """Return the `size` - 4 most frequent words that occur at least `least` times; equals go by alphabet."""
        ordered = sorted((-count, word) for word, count in counts.items() if count >= least)
        return cls(tuple(word for _, word in ordered[: size - FIRST_WORD]))

    def __len__(self) -> int:
        return FIRST_WORD + len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the id of each word as it is written, else of its lower case, else that of an unknown word."""
        ids = self.ids
        return [ids[word] if word in ids else ids.get(word.lower(), UNKNOWN) for word in words]

    def unknown(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return the words that are encoded as an unknown word, each once."""
        return tuple(dict.fromkeys(word for word in words if self.encode([word]) == [UNKNOWN]))

    def word(self, index: int) -> str:
        """Return the word of an id, or its name such as ``<unknown>``."""
        return SPECIAL[index] if index < FIRST_WORD else self.words[index - FIRST_WORD]

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: FIRST_WORD + index for index, word in enumerate(self.words)}


@dataclass(frozen=True)
class _KnownWords(Side):
    """Base of both sides: the words from id 4 on."""

    reads_empty_lines: ClassVar[bool] = True
    known: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.known) <= MAX_VOCABULARY or len(set(self.known)) < len(self.known):
            raise UserError(f"known: found {show(self.known)}; expected different strings")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words by id."""
        return Vocabulary(self.known)

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": len(self.vocabulary)}

    @property
    def tokens(self) -> Sequence[str]:
        return [*SPECIAL, *self.known]

    @property
    def unknown_id(self) -> int:
        return UNKNOWN

    def names(self, positions: Sequence[int]) -> list[str]:
        return [self.vocabulary.word(index) for index in positions]


@dataclass(frozen=True)
class Words(_KnownWords):
    """The text of a language model on words: a line is the beginning of a text, which the model continues."""

    kind: ClassVar[str] = "words"
    continues: ClassVar[bool] = True

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "language_model"}

    def read_line(self, line: str, *, where: str) -> Example:
        """The words of a line are the `target`; text is cut as `split_words` does."""
        words = _words(line, where)
        return Example((), tuple(self.vocabulary.encode(words)), unknown=self.vocabulary.unknown(words))

    def render(self, target: Sequence[int]) -> str:
        return " ".join("\n" if index == END else self.vocabulary.word(index) for index in target).strip()


@dataclass(frozen=True)
class Passage(_KnownWords):
    """Reading comprehension: a line is a passage without its last word, which is the answer.

    The source of an example is the context, the start id, and the last sentence without its last word; its target is
    the id of the answer.
    """

    kind: ClassVar[str] = "passage"

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "classifier", "vocabulary.num_classes": len(self.vocabulary)}

    def question(self, words: Sequence[str]) -> tuple[int, ...]:
        """The source of a passage without its last word: context, start id, beginning of the last sentence."""
        ids = self.vocabulary.encode(words)
        cut = last_sentence(words)
        return (*ids[:cut], START, *ids[cut:])

    def answer(self, word: str) -> int:
        """The class of a word; `NO_CLASS` for one that is not in the vocabulary, so that no answer is right."""
        (index,) = self.vocabulary.encode([word])
        return NO_CLASS if index == UNKNOWN else index

    def read_line(self, line: str, *, where: str) -> Example:
        """A line is a passage without its last word."""
        words = _words(line, where)
        return Example(source=self.question(words), target=(), unknown=self.vocabulary.unknown(words))

    def render(self, target: Sequence[int]) -> str:
        (index,) = target
        return SPECIAL[UNKNOWN] if index == NO_CLASS else self.vocabulary.word(index)


def last_sentence(words: Sequence[str]) -> int:
    """Return the index of the first word of the last sentence: after the last mark that ends a sentence, and its
    closing quotation marks and brackets; 0 without such a mark.
    """
    for place in range(len(words) - 1, -1, -1):
        if words[place] in SENTENCE_ENDS:
            place += 1
            while place < len(words) and words[place] in CLOSERS:
                place += 1
            if place < len(words):
                return place
    return 0


def _words(text: str, where: str) -> list[str]:
    words = split_words(text)
    if len(words) > MAX_PROMPT:
        raise UserError(f"{where}: a text of {len(words):,} words; expected at most {MAX_PROMPT:,}")
    return words
