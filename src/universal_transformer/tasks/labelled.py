"""Your own labelled texts: one class for each text.

The data are files of ``text<TAB>label`` lines, or of JSON lines ``{"text": …, "label": …}``. The classes are the sorted
labels of the training file. A text ends with the id of ``<end>``, so that an empty line still has a position. A row can
have two texts, such as a premise and a hypothesis: ``<end>`` separates them, and each has a segment embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.text_table import BETWEEN, Columns, TextRow, TextTable
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.own_files import OwnFiles
from universal_transformer.tasks.sides.label import Classes
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.typed import AtLeastTwo, NumberOf, Share, check

MAX_LABELS = 10_000


@dataclass(frozen=True, kw_only=True)
class LabelledData(OwnFiles):
    """Texts from your own files, each with a class."""

    sides: ClassVar[Sides] = (Text, Classes)
    ROWS: ClassVar = "texts"
    needs: ClassVar = ("text<TAB>label lines", "JSON lines")
    FILES: ClassVar[tuple[str, ...]] = ("train", "validation", "test", "tokenizer")
    train: str = ""
    """Training texts: a file of `text<TAB>label` lines, or JSON lines (.jsonl) with "text" and "label"; for two texts
    with one label, `text<TAB>text<TAB>label`, or a "text" of [text, text]. Any file may end in .gz."""
    validation: str = ""
    """Validation texts, like `train`; without it a part of the training texts is held out."""
    test: str = ""
    """Test texts, like `train`; without it the validation texts are scored."""
    tokenizer: str = "word"
    """What a token is: character; whitespace (what stands between two blanks); word (a word or punctuation mark); bpe
    (byte pairs merged by frequency); or a file, FILE.json of Hugging Face or FILE.model of SentencePiece."""
    vocabulary_size: int = 20000
    """At most so many different tokens."""
    lower_case: bool = False
    """Turn all text into lower case."""
    max_length: AtLeastTwo = 256
    """Tokens of the longest text, <end> included; longer texts are left out and counted."""
    validation_fraction: Share = 0.05
    """Part of the training texts held out if no validation file is named."""
    seed: NumberOf = 0
    """Seed of what is held out."""
    group: str = ""
    """Column whose values group the figures: a key of JSON lines, or the number of a TSV column, from 1 on."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=self.lower_case)

    @property
    def columns(self) -> Columns:
        return Columns("text", "label", group=self.group, two_texts=True)

    def read(self, part: str) -> TextTable:
        table = super().read(part)
        if part == "train":
            _labels(table)
        return table

    name = "labelled"
    scored_by = "classes"

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Text, Classes]:
        labels, texts = _labels(given), [text for row in rows for text in row.first.split(BETWEEN)]
        tokenizer = make_tokenizer(
            self.tokenizer, texts, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case
        )
        return Codec(Text(tokenizer, self.max_length, segments=_segments(given)), Classes(labels))

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        if (found := _segments(table)) != codec.source.segments:
            raise UserError(
                f"{table.name}:{table.rows[0].line}: {found} text{'s' * (found > 1)} before the label; the training "
                f"file has {codec.source.segments}"
            )
        return super().encode(codec, table, notes)


def _segments(table: TextTable) -> int:
    return table.rows[0].first.count(BETWEEN) + 1


def _labels(table: TextTable) -> tuple[str, ...]:
    labels = tuple(sorted({row.second.strip() for row in table.rows}))
    where = f"{table.name}:{table.rows[-1].line}"
    if len(labels) < 2:
        found = "; ".join([f"{where}: up to this last line one label only, {show(labels[0])}", *table.blank_note])
        raise UserError(f"{found}; expected at least two labels")
    if len(labels) > MAX_LABELS:
        raise UserError(
            f"{where}: {len(labels):,} different labels up to this last line; expected at most "
            f"{MAX_LABELS:,} (are the columns swapped?)"
        )
    return labels
