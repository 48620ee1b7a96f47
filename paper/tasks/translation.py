"""Translation from English to German: Multi30k, and WMT14 if you have its files (table 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

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

Name = Literal["multi30k", "wmt14"]


@dataclass(frozen=True)
class TranslationCorpus:
    """The parts of a corpus next to "train"; each is two files, PART.en and PART.de, or PART.en.gz and PART.de.gz."""

    validation: str
    tests: tuple[str, ...]
    remedy: str = ""
    """How to get the files that `ut data fetch` cannot download."""


CORPORA: Mapping[str, TranslationCorpus] = {
    "multi30k": TranslationCorpus("val", ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")),
    "wmt14": TranslationCorpus(
        "newstest2013",
        ("newstest2014",),
        remedy="put the sentences of statmt.org/wmt14 there, translations in lines of the same number",
    ),
}


@dataclass(frozen=True, kw_only=True)
class TranslationData:
    """English-German sentence pairs of a known corpus, scored by BLEU and chrF on each of its test sets."""

    sides: ClassVar[Sides] = (Text, Text)
    corpus: Name = "multi30k"
    """Which pairs: multi30k (`ut data fetch multi30k`), or wmt14 from files of your own."""
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
        parts = {part: self._read(part) for part in ("train", corpus.validation, *corpus.tests)}
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

    def _read(self, part: str) -> TextTable:
        rows = parallel_rows(self._file(f"{part}.en"), self._file(f"{part}.de"))
        return collect(f"{self.corpus} {part}", rows, columns=("source", "target"))

    def _file(self, name: str) -> Path:
        """Return the file, packed or not; UserError with where it was looked for and how to get it."""
        folder = data_folder(self.data_dir) / self.corpus
        for found in (folder / f"{name}.gz", folder / name):
            if found.is_file():
                return found
        remedy = CORPORA[self.corpus].remedy
        if not remedy:
            return find(self.corpus, self.data_dir, file=f"{name}.gz")
        raise UserError(
            f"{show_path(folder / name)}: no such file (nor {name}.gz) in the data folder "
            f"{show_path(data_folder(self.data_dir))}; {remedy}, or name the folder that has it with --data-dir or "
            "UT_DATA"
        )
