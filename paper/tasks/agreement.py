"""Subject-verb agreement by a language model (table 2; paper, section 3.2).

Training is next-word prediction, ``-Σ log p(word | words before it)``. The test asks, for the words before a verb in
the present tense, whether the form that agrees with the subject is likelier than the other form:
``p(right | words) > p(wrong | words)``. Rows are the numbers of attractors: nouns between subject and verb, all
of them of the other number (homogeneous intervention; Linzen, Dupoux and Goldberg, TACL 2016).

======== =========================================================================================================
corpus   training and test data
======== =========================================================================================================
parts    the published parts in the data folder ``sva``, a changed split. Training: Linzen's simplified validation
         file (beginnings of sentences up to the verb, which is written as its tag) and a course's sample of whole
         sentences, and the training files of both where they exist. Test set "verbs": 7,489 sentences with both
         forms of the verb, 0 to 4 attractors. Test set "tags": Linzen's simplified test files, 1 to 5 attractors,
         and the sentences of "verbs" for 0 attractors: is the tag VBZ (singular) or VBP (plural) likelier.
official ``linzen/agr_50_mostcommon_10K.tsv.gz``, 9 % to train, 1 % to validate and 90 % to test as in the paper, drawn
         by `seed` (the authors' draw is not published). Test set "verbs": 0 attractors means no noun between subject
         and verb; sentences with nouns of both numbers between them are the group "mixed".
======== =========================================================================================================

In both, rare words are replaced by their part-of-speech tags, as in Linzen's files.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from paper.tasks.agreement_files import (
    TAGS,
    Sentence,
    read_dependencies,
    read_forms,
    read_prefixes,
    read_sample,
)
from paper.tasks.more_text import RARE, novel_sentences, wikitext_sentences
from paper.tasks.words import Vocabulary, VocabularySize, Words
from universal_transformer.data.download import find
from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import END, UNKNOWN
from universal_transformer.errors import UserError
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import NumberOf, Positive, Share, check

OFFICIAL = "agr_50_mostcommon_10K.tsv.gz"
SHARES = (0.09, 0.01)
"""Shares of the official file to train on and to validate with; the rest is the test."""
LEAST_SHARED = 6
"""Two texts with a common beginning of at least so many words are taken for the same sentence."""
_OTHER = "*"


def pack_texts(texts: Iterable[tuple[Sequence[int], int, str]]) -> LazyExamples:
    """Put texts into one array: the ids of each, the wrong form of its last word (0: none), and its group.

    The source of an example is the text with the wrong form.
    """
    words, ends, wrong, groups = array("i"), array("q", [0]), array("i"), []
    for ids, other, group in texts:
        words.extend(ids)
        ends.append(len(words))
        wrong.append(other)
        groups.append(group)

    def make(index: int) -> Example:
        ids = tuple(words[ends[index] : ends[index + 1]])
        source = (*ids[:-1], wrong[index]) if wrong[index] else ()
        return Example(source=source, target=ids, group=groups[index])

    return LazyExamples(make, count=len(groups))


@dataclass
class AgreementCorpus:
    """Sentences to train on, validate with and test, before words become ids."""

    train: list[Sentence]
    validation: list[Sentence]
    test: dict[str, Sequence[Sentence]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class AgreementData:
    """A language model that is tested on the agreement of verbs with their subjects."""

    sides: ClassVar[Sides] = (Words, Words)
    corpus: Literal["parts", "official"] = "parts"
    """The parts in the data folder `sva` (a changed split), or Linzen's whole file, which you provide."""
    data_dir: str = ""
    """Folder with the data sets; empty: that of the environment variable UT_DATA, or else "data"."""
    vocabulary_size: VocabularySize = 10_000
    """At most so many different words, special ones included; others are <unknown>, and so are words seen once."""
    more_text: bool = False
    """Also train on sentences of the novels and of WikiText-2's validation part, whose words fill the vocabulary up."""
    repeat: Positive = 1
    """How often a training sentence of the corpus is seen in an epoch."""
    validation: Share = 0.05
    """Share of the training texts that is held out for validation (parts)."""
    seed: NumberOf = 0
    """Chooses what is held out."""

    def __post_init__(self) -> None:
        check(self, field="data")

    def load(self, saved: Saved | None = None) -> Task:
        """Read the files, remove test sentences from training, and encode; the vocabulary is that of training."""
        corpus = self._parts() if self.corpus == "parts" else self._official()
        if not corpus.train or not corpus.validation:
            raise UserError(
                f"{self.corpus}: {len(corpus.train)} texts to train on and {len(corpus.validation)} to validate with; "
                "expected at least one of each"
            )
        notes = list(corpus.notes)
        more = self._more(corpus, notes) if self.more_text else []
        codec: Codec[Words, Words] = saved.codec if saved else self._learn(corpus.train, more)
        vocabulary = codec.source.vocabulary
        tests = {name: pack_texts(_pairs(sentences, vocabulary)) for name, sentences in corpus.test.items()}
        for name, sentences in corpus.test.items():
            if left_out := len(sentences) - len(tests[name]):
                notes.append(
                    f"{name}: {left_out:,} of {len(sentences):,} sentences left out: a form of the verb is not in the "
                    "vocabulary"
                )
        return Task(
            name=f"agreement ({self.corpus})",
            codec=codec,
            train=pack_texts(
                (vocabulary.encode(words) + [END] * whole, 0, "")
                for words, whole in chain(
                    ((sentence.words, sentence.whole) for sentence in corpus.train * self.repeat),
                    ((words, True) for words in more),
                )
            ),
            validation=pack_texts(_pairs(corpus.validation, vocabulary)),
            test=tests,
            metric="ranking",
            notes=tuple(notes),
        )

    def _learn(self, sentences: Iterable[Sentence], more: Iterable[Sequence[str]]) -> Codec[Words, Words]:
        counts = Counter(word for sentence in sentences for word in sentence.words)
        own = Vocabulary.of(counts, size=self.vocabulary_size, least=2)
        others = Counter(word for words in more for word in words if word not in own.ids and word != RARE)
        added = Vocabulary.of(others, size=self.vocabulary_size - len(own.words), least=2)
        return Codec.shared(Words(own.words + added.words))

    def _more(self, corpus: AgreementCorpus, notes: list[str]) -> list[tuple[str, ...]]:
        """The sentences of other texts, without those of a test."""
        novels, wiki = list(novel_sentences(self.data_dir)), list(wikitext_sentences(self.data_dir))
        tests = [sentence for found in corpus.test.values() for sentence in found]
        leaked = find_shared([Sentence(words, len(words), "", "") for words in wiki], tests)
        notes.append(
            f"also trained on {len(novels):,} sentences of novels and {len(wiki) - len(leaked):,} of WikiText-2's "
            f"validation part ({len(leaked)} that are in a test are left out), each sentence of the corpus "
            f"{self.repeat} times in an epoch"
        )
        return novels + [words for place, words in enumerate(wiki) if place not in leaked]

    def _parts(self) -> AgreementCorpus:
        forms = (self._file(f"colorless/linzen_testset/subj_agr_filtered.{end}") for end in ("text", "gold"))
        tests: dict[str, Sequence[Sentence]] = {"verbs": list(read_forms(*forms))}
        tags = [
            sentence.as_tag()
            for sentence in tests["verbs"]
            # two equal forms do not show which tag the verb has
            if sentence.attractors == 0 and sentence.right != sentence.wrong
        ]
        for attractors in range(1, 6):
            tags += read_prefixes(self._file(f"rnn_agr_simple/numpred.test.{attractors}"), attractors=attractors)
        tests["tags"] = tags
        texts = list(read_prefixes(self._file("rnn_agr_simple/numpred.val")))
        texts += read_sample(self._file("edinburgh_wiki/wiki-dev.txt"))
        texts += read_sample(self._file("edinburgh_wiki/wiki-test.txt"))
        more = []
        for name, read in (
            ("rnn_agr_simple/numpred.train", read_prefixes),
            ("edinburgh_wiki/wiki-train.txt", read_sample),
        ):
            try:
                path = self._file(name)
            except UserError:
                continue  # the file does not exist; a damaged file raises an error when it is read
            texts += read(path)
            more.append(path.name)
        leaked = find_shared(texts, [sentence for sentences in tests.values() for sentence in sentences])
        kept = [sentence for place, sentence in enumerate(texts) if place not in leaked]
        random.Random(self.seed).shuffle(kept)
        held = max(1, round(self.validation * len(kept)))
        train, validation = kept[held:], kept[:held]
        repeated = find_shared(validation, train)
        validation = [sentence for place, sentence in enumerate(validation) if place not in repeated]
        files = ", ".join(("numpred.val", "wiki-dev.txt", "wiki-test.txt", *more))
        notes = [
            f"a changed split: trained on {len(train):,} sentences and beginnings of sentences ({files}), "
            "not on the official training file",
            f"{len(leaked)} of {len(texts):,} training texts left out: they share a sentence with a test; "
            f"{len(repeated)} of {held:,} validation texts: with a training text",
            "verbs: which form of the verb is likelier; tags: which of VBZ and VBP is (its files end before the verb; "
            "those of 0 attractors are sentences of the verbs)",
        ]
        return AgreementCorpus(train=train, validation=validation, test=tests, notes=notes)

    def _official(self) -> AgreementCorpus:
        path = find("linzen", self.data_dir, file=OFFICIAL)
        sentences = list(read_dependencies(path))
        random.Random(self.seed).shuffle(sentences)
        first = round(SHARES[0] * len(sentences))
        second = first + max(1, round(SHARES[1] * len(sentences)))
        test = sentences[second:]
        tested = {sentence.words for sentence in test}
        train = [sentence for sentence in sentences[:first] if sentence.words not in tested]
        held = [sentence for sentence in sentences[first:second] if sentence.words not in tested]
        notes = [f"the sentences of each part were drawn by seed {self.seed} (the authors' draw is not published)"]
        if leaked := second - len(train) - len(held):
            notes.append(f"{leaked:,} training sentences left out: they are in the test, too")
        return AgreementCorpus(train=train, validation=held, test={"verbs": test}, notes=notes)

    def _file(self, name: str) -> Path:
        return find("sva", self.data_dir, file=name)


def find_shared(training: Sequence[Sentence], tests: Sequence[Sentence]) -> set[int]:
    """Return which training texts share a sentence with a test.

    Two texts are taken for the same sentence if one is the beginning of the other and has at least 6 words. Only words
    that occur in the files of beginnings are compared, because a rare word is replaced by its tag there and written out
    in other files. Shorter texts are taken for the same sentence if all their words before the verb are the same.
    """
    beginnings = [sentence for sentence in (*training, *tests) if not sentence.whole]
    common = {word for sentence in beginnings or training for word in sentence.words} - TAGS

    def key(sentence: Sentence) -> tuple[str, ...]:
        # a beginning ends with the tag of its verb, which other files write as a word: the tag is not compared
        words = sentence.words if sentence.whole else sentence.words[: sentence.verb]
        return tuple(word if word in common else _OTHER for word in words)

    before_verbs = {sentence.words[: sentence.verb] for sentence in tests}
    tested: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for words in map(key, tests):
        if len(words) >= LEAST_SHARED:
            tested.setdefault(words[:LEAST_SHARED], set()).add(words)
    found = set()
    for place, sentence in enumerate(training):
        words = key(sentence)
        others = tested.get(words[:LEAST_SHARED], ())
        if sentence.words[: sentence.verb] in before_verbs or any(
            words[: len(other)] == other or other[: len(words)] == words for other in others
        ):
            found.add(place)
    return found


def _pairs(sentences: Sequence[Sentence], vocabulary: Vocabulary) -> Iterator[tuple[list[int], int, str]]:
    """Yield the words up to the verb of each sentence, with the verb's wrong form, where both forms are known."""
    for sentence in sentences:
        right, wrong = vocabulary.encode((sentence.right, sentence.wrong))
        if UNKNOWN not in (right, wrong) and right != wrong:
            yield [*vocabulary.encode(sentence.words[: sentence.verb]), right], wrong, sentence.group
