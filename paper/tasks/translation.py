"""Translation from English to German: Multi30k, WMT14 if you have its files, and a stand-in for it (table 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from universal_transformer.data.columns import TextRow
from universal_transformer.data.download import data_folder, find
from universal_transformer.data.text_table import TextTable, collect, parallel_rows
from universal_transformer.data.tokenizer_files import check_choice
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.pairs import PairsCodec, PairsData
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import AtLeastTwo, check

Name = Literal["multi30k", "wmt14", "wmt-news"]


@dataclass(frozen=True)
class TranslationCorpus:
    """The parts of a corpus; each is two files, PART.en and PART.de, or PART.en.gz and PART.de.gz."""

    validation: str
    tests: tuple[str, ...]
    train: tuple[str, ...] = ("train",)
    folder: str = ""
    """Its folder among the data sets, if that is not its name."""
    languages: tuple[str, str] = ("en", "de")
    """Endings of the files."""
    disjoint: bool = False
    """Whether training pairs are left out whose source or target is also in the validation or a test."""
    remedy: str = ""
    """How to get the files that `ut data fetch` cannot download."""


_NEWS_YEARS = ("2009", "2010", "2011", "2012", "2015", "2016", "2017", "2018", "2019", "2020")
CORPORA: Mapping[str, TranslationCorpus] = {
    "multi30k": TranslationCorpus("val", ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")),
    "wmt14": TranslationCorpus(
        "newstest2013",
        ("newstest2014",),
        remedy="put the sentences of statmt.org/wmt14 there, translations in lines of the same number",
    ),
    "wmt-news": TranslationCorpus(
        "newstest2013",
        ("newstest2014",),
        train=("news-test2008", *(f"newstest{year}" for year in _NEWS_YEARS), "tatoeba-test-v2021-08-07"),
        folder="wmt_news_ende",
        languages=("eng", "deu"),
        disjoint=True,
        remedy="put the files of testsets/eng-deu of github.com/Helsinki-NLP/OPUS-MT-testsets there",
    ),
}


@dataclass(frozen=True, kw_only=True)
class TranslationData:
    """English-German sentence pairs of a known corpus, scored by BLEU and chrF on each of its test sets."""

    sides: ClassVar[Sides] = (Text, Text)
    corpus: Name = "multi30k"
    """Which pairs: multi30k (`ut data fetch multi30k`), wmt14 from files of your own, or wmt-news: the news test sets
    of other years and Tatoeba's pairs in place of the training files of wmt14."""
    data_dir: str = ""
    """Folder with the data sets; empty: the environment variable UT_DATA, or else data."""
    vocabulary_size: int = 4000
    """At most so many different byte pairs, for both languages together."""
    max_length: AtLeastTwo = 256
    """Tokens of the longest source or target, <end> included; longer pairs are left out and counted."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice("bpe", self.vocabulary_size, lower_case=False)

    def load(self, saved: Saved | None = None) -> Task:
        """Read the files and encode all pairs; of a new run, byte pairs are learned from the training part."""
        pairs = PairsData(vocabulary_size=self.vocabulary_size, max_length=self.max_length)
        corpus = CORPORA[self.corpus]
        train = self._read("train", *corpus.train)
        held_out = {part: self._read(part, part) for part in (corpus.validation, *corpus.tests)}
        parts = {"train": without_copies(train, held_out.values()) if corpus.disjoint else train} | held_out
        codec: PairsCodec = saved.codec if saved else pairs.learn(parts["train"].rows)
        notes = [note for table in parts.values() for note in table.notes]
        examples = {part: pairs.encode(codec, table, notes) for part, table in parts.items()}
        return Task(
            name=f"translation {self.corpus}",
            codec=codec,
            train=examples["train"],
            validation=examples[corpus.validation],
            test={part: examples[part] for part in corpus.tests},
            metric="bleu",
            notes=tuple(notes),
        )

    def _read(self, title: str, *parts: str) -> TextTable:
        source, target = CORPORA[self.corpus].languages
        files = ((self._file(f"{part}.{source}"), self._file(f"{part}.{target}")) for part in parts)
        rows = chain.from_iterable(parallel_rows(*both) for both in files)
        return collect(f"{self.corpus} {title}", rows, columns=("source", "target"))

    def _file(self, name: str) -> Path:
        """Return the file, packed or not; UserError with where it was looked for and how to get it."""
        corpus = CORPORA[self.corpus]
        folder = data_folder(self.data_dir) / (corpus.folder or self.corpus)
        for found in (folder / f"{name}.gz", folder / name):
            if found.is_file():
                return found
        if not corpus.remedy:
            return find(self.corpus, self.data_dir, file=f"{name}.gz")
        raise UserError(
            f"{show_path(folder / name)}: no such file (nor {name}.gz) in the data folder "
            f"{show_path(data_folder(self.data_dir))}; {corpus.remedy}, or name the folder that has it with "
            "--data-dir or UT_DATA"
        )


def without_copies(train: TextTable, held_out: Iterable[TextTable]) -> TextTable:
    """The training pairs whose source and target are no source and no target of a pair that is held out."""
    held = [_compared(row) for table in held_out for row in table.rows]
    sources, targets = ({texts[side] for texts in held} for side in (0, 1))
    compared = zip(train.rows, map(_compared, train.rows), strict=True)
    rows = tuple(row for row, (source, target) in compared if source not in sources and target not in targets)
    left_out = (
        f"{train.name}: {len(train.rows) - len(rows):,} of {len(train.rows):,} pairs left out: their source or target "
        "is also in the validation or the test"
    )
    return replace(train, rows=rows, notes=(*train.notes, left_out))


def _compared(row: TextRow) -> tuple[str, str]:
    """Source and target without the differences of case and blanks, in which copies of a sentence differ."""
    return " ".join(row.first.lower().split()), " ".join(row.second.lower().split())
