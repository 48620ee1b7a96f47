"""Codecs of tasks on English text: a vocabulary of whole words with a limited size.

Ids: 0 padding, 1 start, 2 end, 3 a word that is not in the vocabulary, then the words, most frequent first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.data.tokenizer import END, SPECIAL, START, UNKNOWN
from universal_transformer.data.treebank import CLOSERS, SENTENCE_ENDS, split_words
from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path, write_json
from universal_transformer.tasks.codecs import CODEC_FILE, read_kind, token_fields
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
class VocabularyCodec:
    """Base of both codecs: a vocabulary that is saved as a list of words."""

    kind: ClassVar[str]
    vocabulary: Vocabulary

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {side: [*SPECIAL, *self.vocabulary.words] for side in ("source", "target")}

    def save(self, folder: Path) -> None:
        write_json(folder / CODEC_FILE, {"kind": self.kind, "words": list(self.vocabulary.words)})

    @classmethod
    def load(cls: type[AnyCodec], folder: Path) -> AnyCodec:
        match fields := read_kind(folder, kind=cls.kind):
            case {"words": [*words]} if 0 < len(words) <= MAX_VOCABULARY:
                if all(isinstance(word, str) for word in words) and len(set(words)) == len(words):
                    return cls(Vocabulary(tuple(words)))
        path = show_path(folder / CODEC_FILE)
        raise UserError(f'{path}: found {show(fields)}; expected {{"words": different strings}}')


AnyCodec = TypeVar("AnyCodec", bound=VocabularyCodec)


@dataclass(frozen=True)
class WordCodec(VocabularyCodec):
    """The codec of a language model on words: a line is the beginning of a text, which the model continues."""

    kind: ClassVar[str] = "words"

    @property
    def model_fields(self) -> dict[str, Any]:
        return token_fields("language_model", size=len(self.vocabulary))

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield the words of each line as `target`, an empty line included; text is cut as `split_words` does."""
        for number, text in lines:
            words = _words(text, f"{name}:{number}")
            ids = tuple(self.vocabulary.encode(words))
            yield Example(source=(), target=ids, unknown=self.vocabulary.unknown(words))

    def render(self, target: int | Sequence[int]) -> str:
        assert not isinstance(target, int), "a target is a sequence of ids"
        return " ".join("\n" if index == END else self.vocabulary.word(index) for index in target).strip()

    def words(self, example: Example) -> list[str]:
        assert isinstance(example.target, tuple)
        return [self.vocabulary.word(index) for index in example.target]


@dataclass(frozen=True)
class ReadingCodec(VocabularyCodec):
    """The codec of reading comprehension: a line is a passage without its last word, which is the answer.

    The source of an example is the context, the start id, and the last sentence without its last word; its target is
    the id of the answer.
    """

    kind: ClassVar[str] = "reading"

    @property
    def model_fields(self) -> dict[str, Any]:
        return token_fields("classifier", size=len(self.vocabulary), num_classes=len(self.vocabulary))

    def question(self, words: Sequence[str]) -> tuple[int, ...]:
        """Return the source of a passage without its last word: context, start id, beginning of the last sentence."""
        ids = self.vocabulary.encode(words)
        cut = last_sentence(words)
        return (*ids[:cut], START, *ids[cut:])

    def answer(self, word: str) -> int:
        """Return the class of a word; `NO_CLASS` for one that is not in the vocabulary, so that no answer is right."""
        (index,) = self.vocabulary.encode([word])
        return NO_CLASS if index == UNKNOWN else index

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without an answer for every line: a passage without its last word."""
        for number, text in lines:
            words = _words(text, f"{name}:{number}")
            yield Example(source=self.question(words), target=NO_CLASS, unknown=self.vocabulary.unknown(words))

    def render(self, target: int | Sequence[int]) -> str:
        assert isinstance(target, int), "an answer is one word"
        return SPECIAL[UNKNOWN] if target == NO_CLASS else self.vocabulary.word(target)

    def words(self, example: Example) -> list[str]:
        return [self.vocabulary.word(index) for index in example.source if isinstance(index, int)]


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
