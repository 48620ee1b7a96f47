"""Baselines that know how often each word of a source stands with each class."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import NO_CLASS, PADDING, Example, ids_of
from universal_transformer.errors import UserError
from universal_transformer.evaluation.trivial import TrivialBaseline, counted
from universal_transformer.models.model_config import BaseConfig
from universal_transformer.typed import NumberOf

HELD_OUT = 10
"""Every so-many-th example says whether the words of the others help."""


@dataclass(frozen=True, kw_only=True)
class WordCounts(TrivialBaseline):
    """Counts of words and classes together; none where the words of sources tell nothing about the classes."""

    pairs: tuple[NumberOf, ...] = ()
    """Three numbers for each word and class that occur together: word, class, and how often."""

    def __post_init__(self) -> None:
        if len(self.pairs) % 3 or max(self.pairs[1::3], default=0) >= len(self.counts):
            raise UserError(f"pairs: {len(self.pairs)} numbers; expected words, known classes and counts")

    @cached_property
    def by_word(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Word -> its classes, and how often it stands with each."""
        found = defaultdict[int, list[tuple[int, int]]](list)
        for word, label, count in zip(self.pairs[::3], self.pairs[1::3], self.pairs[2::3], strict=True):
            found[word].append((label, count))
        return {word: (np.array(some)[:, 0], np.array(some)[:, 1]) for word, some in found.items()}


@dataclass(frozen=True, kw_only=True)
class TagOfWord(WordCounts):
    """The most frequent tag of each token; of tokens that training has not, the most frequent tag."""

    @classmethod
    def learn(cls, examples: Iterable[Example], config: BaseConfig) -> TagOfWord:
        examples, pairs = [*counted(examples)], Counter[tuple[Any, int]]()
        for example in examples:
            if _is_words(example.source):
                tags = zip(example.source, ids_of(example.target), strict=True)
                pairs.update((word, tag) for word, tag in tags if tag)
        return dataclasses.replace(super().learn(examples, config), pairs=_flat(pairs))

    def errors(self, example: Example) -> int:
        tags = zip(ids_of(example.target), self.classes(example.source), strict=True)
        return sum(tag not in (PADDING, given) for tag, given in tags)

    def classes(self, source: Any) -> tuple[int, ...]:
        return tuple(self._best.get(word, self.most_frequent) for word in source)

    @cached_property
    def _best(self) -> dict[Any, int]:
        return {word: int(tags[counts.argmax()]) for word, (tags, counts) in self.by_word.items()}

    def describe(self, render: Callable[[Any], str]) -> str:
        return "the most frequent tag of each token" if self.pairs else super().describe(render)


@dataclass(frozen=True, kw_only=True)
class NaiveBayes(WordCounts):
    """``argmax_c log n(c) + Σ_w log (n(w, c) + 1) / (Σ_v n(v, c) + V)`` over the V words of training in a source.

    ``n(w, c)`` counts the sources of class c with the word w. The words of two texts are different words. Without
    `pairs`, the most frequent class: where it is as good on held-out training examples.
    """

    end_id: NumberOf = 0
    """Ends a text."""

    @classmethod
    def learn(cls, examples: Iterable[Example], config: BaseConfig) -> NaiveBayes:
        examples = [*counted(examples)]
        frequent = dataclasses.replace(super().learn(examples, config), end_id=config.vocabulary.end_id)
        if not all(_is_words(example.source) for example in examples):
            return frequent

        def of_words(some: Iterable[Example]) -> NaiveBayes:
            pairs = Counter((word, one.target) for one in some for word in frequent.words(one.source))
            return dataclasses.replace(frequent, pairs=_flat(pairs))

        tried = of_words(one for place, one in enumerate(examples) if place % HELD_OUT)
        held = examples[::HELD_OUT]
        right = [sum(baseline.classes(one.source)[0] == one.target for one in held) for baseline in (tried, frequent)]
        return of_words(examples) if right[0] > right[1] else frequent

    def errors(self, example: Example) -> int:
        return int(example.target not in (NO_CLASS, self.classes(example.source)[0]))

    def words(self, source: Any) -> frozenset[int]:
        """The words of a source: even numbers those of a first text, odd ones those of a second text."""
        return frozenset(self._words(source))

    def _words(self, source: Sequence[int]) -> Iterator[int]:
        second = 0
        for word in source:
            if word == self.end_id:
                second = 1
            else:
                yield 2 * word + second

    def classes(self, source: Any) -> tuple[int, ...]:
        if not self.pairs:
            return super().classes(source)
        with np.errstate(divide="ignore"):  # a class without an example has probability 0
            scores = np.log(np.array(self.counts, dtype=np.float64))
        for word in self.words(source) & self.by_word.keys():
            labels, counts = self.by_word[word]
            scores -= self._log_totals
            scores[labels] += np.log(counts + 1.0)
        return (int(scores.argmax()),)

    @cached_property
    def _log_totals(self) -> NDArray[np.float64]:
        totals = np.full(len(self.counts), float(len(self.by_word)))
        np.add.at(totals, np.array(self.pairs[1::3]), self.pairs[2::3])
        return np.log(totals)

    def describe(self, render: Callable[[Any], str]) -> str:
        return "a naive Bayes classifier of the words" if self.pairs else super().describe(render)


def _is_words(source: Any) -> bool:
    return isinstance(source, tuple) and all(isinstance(word, int) for word in source)


def _flat(pairs: Counter[Any]) -> tuple[int, ...]:
    return tuple(number for (word, label), count in sorted(pairs.items()) for number in (word, label, count))
