"""LAMBADA: predict a passage's last word, which needs the whole passage and not only its last sentence (table 3).

Paperno et al., ACL 2016; the Universal Transformer paper, section 3.4. Two tasks on the same passages:

========== =======================================================================================================
task       what is learned and measured
========== =======================================================================================================
lambada    A language model. Training: novels, cut into blocks of words, every word predicted from those before it.
           Measured on each passage, from its first word on: ``exp(-1/P Σ log p(last word | words before it))`` over P
           passages, and how often the last word is the likeliest of the whole vocabulary.
reading    Reading comprehension, as Chu et al. (EACL 2017) define it: the last sentence without its last word is a
           question, and the answer is a word of the sentences before it. Training: sentences of novels whose last word
           also occurs in the sentences before them. Measured: how often the answer is right, over all passages, also
           over those that do not contain the answer. `models.heads` points at a word of the passage.
========== =======================================================================================================

A last word that is not in the vocabulary is never right; its probability is that of ``<unknown>``. The original 2,662
novels are no longer published with the passages: training is on 97 older novels, and the notes of each figure say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from paper.tasks.novels import BETWEEN, Novels, read_novels
from paper.tasks.treebank import CLOSERS, SENTENCE_ENDS
from paper.tasks.words import (
    FIRST_WORD,
    Passage,
    Vocabulary,
    VocabularySize,
    Words,
    last_sentence,
)
from universal_transformer.data.download import data_folder, find
from universal_transformer.data.example import NO_CLASS, Example, spread
from universal_transformer.data.tokenizer import END, START
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines, show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.tasks.text import blocks
from universal_transformer.typed import AtLeastTwo, NumberOf, Positive, Range, check

CONTROL = "control"
SETS = {
    CONTROL: "lambada_control_test_data_plain_text.txt",
    "development": "lambada_development_plain_text.txt",
    "test": "lambada_test_plain_text.txt",
}
HELD_OUT = 0.05
"""Share of the novels that a control set is cut from, where the official one is missing."""
CONTROL_PASSAGES = 5000
LONGEST_CONTROL = 200
"""Words of the longest passage of this set, without its last one."""
Answers = Literal["last", "all"]
LEAST_CONTEXT = 50
"""Least number of words before the last sentence of a training passage, as in LAMBADA."""


@dataclass(frozen=True, kw_only=True)
class LambadaData:
    """A language model on novels, tested on the last words of LAMBADA's passages."""

    sides: ClassVar[Sides] = (Words, Words)
    data_dir: str = ""
    """Folder with the data sets; empty: that of the environment variable UT_DATA, or else "data"."""
    vocabulary_size: VocabularySize = 20_000
    """At most so many different words, special ones included; others are <unknown>, and so are words seen once."""
    block_length: AtLeastTwo = 128
    """Words of one training example; a word sees those before it in its block."""
    validation_passages: Positive = 500
    """Passages of the development set, evenly spread, on whose words the best weights are chosen."""

    def __post_init__(self) -> None:
        check(self, field="data")

    def load(self, saved: Saved | None = None) -> Task:
        """Read novels and passages; the vocabulary is that of the novels."""
        passages, novels, about = read_corpus(self.data_dir)
        codec: Codec[Words, Words] = saved.codec if saved else self._learn(novels)
        vocabulary = codec.source.vocabulary
        tests = {
            name: tuple(Example(source=(), target=tuple(vocabulary.encode(words))) for words in found)
            for name, found in passages.items()
        }
        notes = [
            *about,
            f"perplexity and accuracy are those of each passage's last word, out of {len(vocabulary):,} words",
            *(
                f"{name}: {sum(words[-1] not in vocabulary.ids for words in found):,} of {len(found):,} last words are "
                "not in the vocabulary: never right, and <unknown> in the perplexity"
                for name, found in passages.items()
            ),
            f"weights chosen by all words of {self.validation_passages:,} development passages",
        ]
        return Task(
            name="lambada",
            codec=codec,
            train=blocks(number_novels(novels, vocabulary), length=self.block_length),
            validation=spread(tests["development"], count=self.validation_passages),
            test=tests,
            metric="last_word",
            notes=tuple(notes),
        )

    def _learn(self, novels: Novels) -> Codec[Words, Words]:
        return Codec.shared(Words(novel_words(novels, size=self.vocabulary_size).words))


@dataclass(frozen=True, kw_only=True)
class ReadingData:
    """Questions about passages: LAMBADA's last word is looked for among the words before its sentence."""

    sides: ClassVar[Sides] = (Passage, Passage)
    data_dir: str = ""
    """Folder with the data sets; empty: that of the environment variable UT_DATA, or else "data"."""
    vocabulary_size: VocabularySize = 20_000
    """At most so many different words of the novels; others are <unknown>, and so are words seen once."""
    passage_words: bool = True
    """Add the words of the passages, as LAMBADA's own vocabulary does: they can be answers, but the embeddings of words
    that are not in the novels are never trained."""
    answers: Answers = "last"
    """Which words of a sentence of the novels are asked for: its last one, or each that occurs in the sentences before
    it, the question being the words before it."""
    frequent: NumberOf = 0
    """The number of most frequent words that are no answers of training passages: of the last words of the novels'
    sentences 68 % are among 300, of those of LAMBADA 2 %."""
    train_examples: Positive = 200_000
    """Training passages, evenly spread over the novels."""
    max_length: Annotated[int, Range(LEAST_CONTEXT, above=True)] = 200
    """Words of the longest training passage."""
    validation_passages: Positive = 1000
    """Passages of the development set, evenly spread, on which the best weights are chosen."""

    def __post_init__(self) -> None:
        check(self, field="data")

    def load(self, saved: Saved | None = None) -> Task:
        """Read novels and passages, find passages in the novels; the vocabulary is that of the novels."""
        passages, novels, about = read_corpus(self.data_dir)
        codec: Codec[Passage, Passage] = saved.codec if saved else self._learn(novels, passages)
        vocabulary = codec.source.vocabulary
        tokens = number_novels(novels, vocabulary)
        kinds: dict[str, Any] = {"answers": self.answers, "frequent": self.frequent}
        train = find_questions(tokens, vocabulary, max_length=self.max_length, limit=self.train_examples, **kinds)
        notes = [
            *about,
            f"{len(train):,} training passages whose answer also occurs before their last sentence"
            + (f"; no answer is one of the {self.frequent:,} most frequent words" if self.frequent else ""),
        ]
        tests = {}
        for name, found in passages.items():
            tests[name] = tuple(
                Example(source=codec.source.question(words[:-1]), target=codec.source.answer(words[-1]))
                for words in found
            )
            there = sum(words[-1] in words[: last_sentence(words[:-1])] for words in found)
            unknown = sum(example.target == NO_CLASS for example in tests[name])
            notes.append(
                f"{name}: in {there / len(found):.1%} of the passages the answer occurs before the last sentence"
                + (f"; {unknown:,} answers are not in the vocabulary and count as wrong" if unknown else "")
            )
        notes.append(f"weights chosen by {self.validation_passages:,} development passages")
        return Task(
            name="lambada reading",
            codec=codec,
            train=train,
            validation=spread(tests["development"], count=self.validation_passages),
            test=tests,
            metric="accuracy",
            notes=tuple(notes),
        )

    def _learn(self, novels: Novels, passages: Mapping[str, Sequence[Sequence[str]]]) -> Codec[Passage, Passage]:
        vocabulary = novel_words(novels, size=self.vocabulary_size)
        if self.passage_words:
            added = {word for found in passages.values() for words in found for word in words}
            vocabulary = Vocabulary((*vocabulary.words, *sorted(added - vocabulary.ids.keys())))
        return Codec.shared(Passage(vocabulary.words))


def read_passages(data_dir: str) -> dict[str, list[list[str]]]:
    """Return the words of every passage by set; only the control set may be missing."""
    found: dict[str, list[list[str]]] = {}
    for name, file in SETS.items():
        if name == CONTROL and not (data_folder(data_dir) / "lambada" / file).is_file():
            continue
        path = find("lambada", data_dir, file=file)
        passages = []
        for number, line in read_lines(path):
            words = line.split()
            if len(words) < 2:
                raise UserError(
                    f"{show_path(path)}:{number}: found {show(line)}; expected a passage of two words or more"
                )
            passages.append(words)
        found[name] = passages
    return found


def read_corpus(data_dir: str) -> tuple[dict[str, list[list[str]]], Novels, list[str]]:
    """Return the words of every passage by set, the novels to train on, and notes on both.

    Without the official control set its place is taken by passages of novels that are held out.
    """
    passages, novels, notes = read_passages(data_dir), read_novels(data_dir), []
    if CONTROL not in passages:
        novels, held_out = novels.split(HELD_OUT)
        control = control_passages(held_out) if held_out.count else []
        passages = {CONTROL: control} | passages if control else passages
        cut = f"{len(control):,} passages at random places of {held_out.count} novels that are not trained on"
        found = cut if control else "none"
        notes.append(f"{CONTROL}: {found}; the official set, {SETS[CONTROL]}, is not in the data folder")
    words = int((novels.tokens != BETWEEN).sum())
    stand_in = (
        f"trained on a stand-in: {novels.count} novels of 1839 to 1929 ({words:,} words and punctuation marks), "
        "not on the original 2,662"
    )
    return passages, novels, [stand_in, *notes]


def novel_words(novels: Novels, *, size: int) -> Vocabulary:
    """Return the vocabulary of the novels' most frequent words."""
    frequencies = novels.frequencies().tolist()
    counts = dict(zip(novels.types[BETWEEN + 1 :], frequencies[BETWEEN + 1 :], strict=True))
    return Vocabulary.of(counts, size=size, least=2)


def number_novels(novels: Novels, vocabulary: Vocabulary) -> np.ndarray:
    """Return the ids of the novels' words, each novel with an end id."""
    ids = np.array([END, *vocabulary.encode(novels.types[BETWEEN + 1 :])], dtype=np.int32)
    return ids[novels.tokens]


def find_passages(
    tokens: np.ndarray, vocabulary: Vocabulary, *, max_length: int, answers: Answers = "last", frequent: int = 0
) -> np.ndarray:
    """Find passages like LAMBADA's: sentences of at least 50 words, then a sentence up to one of its words, the answer.

    Returns the places of their first word, of the first word of their last sentence, and of their answer.
    Each is of one novel, with at most `max_length` words before the answer. The first `frequent` words of the
    vocabulary are no answers.
    """
    bounds, lasts = _sentences(tokens, vocabulary)
    allowed = [place >= frequent and word.isalpha() for place, word in enumerate(vocabulary.words)]
    words = np.array([False] * FIRST_WORD + allowed)
    ends = lasts if answers == "last" else np.flatnonzero(words[tokens])
    sentence = np.searchsorted(bounds, ends, side="right") - 1
    first = (np.searchsorted(bounds, bounds - LEAST_CONTEXT, side="right") - 1)[sentence]
    starts, cuts = bounds[np.maximum(first, 0)], bounds[sentence]
    novel = np.cumsum(tokens == END)
    fits = (first >= 0) & (ends > cuts) & (ends <= lasts[sentence]) & words[tokens[ends]]
    fits &= (ends - starts <= max_length) & (novel[starts] == novel[ends])
    return np.stack([starts, cuts, ends])[:, fits]


def find_questions(
    tokens: np.ndarray,
    vocabulary: Vocabulary,
    *,
    max_length: int,
    limit: int,
    answers: Answers = "last",
    frequent: int = 0,
) -> LazyExamples:
    """Those passages whose answer occurs before their last sentence, at most `limit`, evenly spread."""
    found = find_passages(tokens, vocabulary, max_length=max_length, answers=answers, frequent=frequent)
    found = found[:, _answered(tokens, *found)]
    count = found.shape[1]
    if not count:
        raise UserError("the novels have no passage whose answer occurs before its last sentence")
    if count > limit:
        found = found[:, np.arange(limit) * count // limit]

    def make(index: int) -> Example:
        start, cut, end = found[:, index].tolist()
        source = (*tokens[start:cut].tolist(), START, *tokens[cut:end].tolist())
        return Example(source=source, target=int(tokens[end]))

    return LazyExamples(make, count=found.shape[1])


def _answered(tokens: np.ndarray, starts: np.ndarray, cuts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whether the word at each end also stands at a place from its start on and before its cut."""
    places = np.argsort(tokens, kind="stable")
    keys = tokens[places].astype(np.int64) * len(tokens) + places  # ordered by word, then by place
    before = keys[np.searchsorted(keys, tokens[ends].astype(np.int64) * len(tokens) + cuts) - 1]
    answered: np.ndarray = before >= tokens[ends].astype(np.int64) * len(tokens) + starts
    return answered & (before < tokens[ends].astype(np.int64) * len(tokens) + cuts)


def control_passages(novels: Novels) -> list[list[str]]:
    """Passages of the shape of LAMBADA's at random places, at most 5,000, which no reader chose."""
    vocabulary = Vocabulary(novels.types[BETWEEN + 1 :])
    tokens = number_novels(novels, vocabulary)
    found = find_passages(tokens, vocabulary, max_length=LONGEST_CONTROL)
    chosen = np.sort(np.random.default_rng(0).permutation(found.shape[1])[:CONTROL_PASSAGES])
    bounds = found[:, chosen].T.tolist()
    return [[vocabulary.word(index) for index in tokens[start : end + 1].tolist()] for start, _, end in bounds]


def _sentences(tokens: np.ndarray, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first word of each sentence, then the end of the last one; and of each last word."""
    is_end = np.isin(tokens, [END, *(vocabulary.ids[mark] for mark in SENTENCE_ENDS if mark in vocabulary.ids)])
    closers = np.isin(tokens, [vocabulary.ids[mark] for mark in CLOSERS if mark in vocabulary.ids])
    closes = np.append(closers, False)
    marks = np.flatnonzero(is_end)
    after = marks + 1
    while (more := closes[after]).any():
        after = after + more
    bounds, places = np.unique(np.append(0, after), return_index=True)
    lasts = marks[places[1:] - 1] - 1  # the first of several marks that end one sentence
    return bounds.astype(np.int64), lasts.astype(np.int64)
