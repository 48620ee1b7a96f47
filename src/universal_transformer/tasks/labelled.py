"""Your own labelled texts: one class for each text.

The data are files of ``text<TAB>label`` lines, or of JSON lines ``{"text": …, "label": …}``. The classes are the sorted
labels of the training file. A text ends with the id of ``<end>``, so that an empty line still has a position. A row can
have two texts, such as a premise and a hypothesis: ``<end>`` separates them, and each has a segment embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.data.text_table import BETWEEN, Columns, TextTable, check_file, read_table
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.codecs import SavedCodec, answer_notes, special_ids, token_fields, too_long
from universal_transformer.tasks.tables import Encoded, OwnTables
from universal_transformer.tasks.task import Codec, Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Share, check

MAX_LABELS = 10_000


@dataclass(frozen=True)
class LabelledCodec(SavedCodec):
    """A tokeniser, the labels in the order of their classes, and the limit of a text."""

    kind: ClassVar[str] = "labelled"
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    max_length: int
    segments: int = 1
    """Texts of an example, each with <end> after it: 1 or 2."""

    def __post_init__(self) -> None:
        if self.segments not in (1, 2):
            raise UserError(f"segments: found {self.segments}; expected 1 or 2")
        if list(self.labels) != sorted(set(self.labels)):
            raise UserError(f"labels: found {show(self.labels)}; expected different strings, sorted")

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the tokenizer and the labels."""
        fields = token_fields("classifier", size=len(self.tokenizer), num_classes=len(self.labels))
        fields |= special_ids(self.tokenizer)
        return fields | ({"inputs.segments": self.segments} if self.segments > 1 else {})

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {"source": self.tokenizer.tokens(), "classes": self.labels}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without a class for every line, an empty one included; two texts have a tab between."""
        for number, line in lines:
            texts = line.split("\t") if self.segments > 1 else [line]
            if len(texts) != self.segments:
                found = f"{len(texts)} column{'s' * (len(texts) > 1)} in {show(line)}"
                raise UserError(f"{name}:{number}: found {found}; expected 2 texts, text<TAB>text")
            ids = tuple(index for text in texts for index in (*self.tokenizer.encode(text), self.tokenizer.end_id))
            if len(ids) > self.max_length:
                raise UserError(too_long(f"{name}:{number}", len(ids), what="text", limit=self.max_length))
            unknown = dict.fromkeys(part for text in texts for part in self.tokenizer.unknown(text))
            notes = answer_notes(line, f"{name}:{number}") if self.segments == 1 else ()
            yield replace(self.example(ids), unknown=tuple(unknown), notes=notes)

    def example(self, source: tuple[int, ...], target: int = NO_CLASS, *, group: str = "") -> Example:
        """Return the example of the ids of a text and its class."""
        return Example(source=source, target=target, group=group, padding_id=self.tokenizer.padding_id)

    def encode_many(self, rows: Sequence[Sequence[str]]) -> list[tuple[int, ...]]:
        """Return the ids of the texts of each row, with the end id after each text."""
        columns = [self.tokenizer.encode_many(texts) for texts in zip(*rows, strict=True)]
        end_id = self.tokenizer.end_id
        return [tuple(index for ids in texts for index in (*ids, end_id)) for texts in zip(*columns, strict=True)]

    def render(self, target: int | Sequence[int]) -> str:
        assert isinstance(target, int), "a target is one class"
        return "<unknown>" if target == NO_CLASS else self.labels[target]

    def spans(self, text: str) -> list[tuple[int, int]]:
        texts = text.split("\t") if self.segments > 1 else [text]
        found, place = [], 0
        for part in texts:
            end = place + len(part)
            found += [(place + first, place + last) for first, last in self.tokenizer.spans(part)]
            found.append((end, end))
            place = end + 1
        return found

    @property
    def vocabulary(self) -> str:
        return f"{len(self.tokenizer):,} tokens, {len(self.labels):,} labels"

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        assert isinstance(example.target, int)
        source = [self.tokenizer.piece(index) for index in example.source if isinstance(index, int)]
        return source, [] if example.target == NO_CLASS else [self.labels[example.target]]

    def words(self, example: Example) -> list[str]:
        return [self.tokenizer.label(index) for index in example.source if isinstance(index, int)]


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """Texts from your own files, each with a class."""

    codec_class: ClassVar[type[Codec]] = LabelledCodec
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

    def load(self) -> Task:
        """Read the files, learn labels and tokeniser from the training texts, encode all texts."""
        check_file("train", self.train, needs=("text<TAB>label lines", "JSON lines"))
        given = self._tables.given()
        labels = _labels(given["train"])
        tables, notes = self._tables.split(given)
        tokenizer = make_tokenizer(
            self.tokenizer,
            [text for row in tables["train"].rows for text in row.first.split(BETWEEN)],
            vocabulary_size=self.vocabulary_size,
            lower_case=self.lower_case,
        )
        segments = _segments(given["train"])
        codec = LabelledCodec(tokenizer=tokenizer, labels=labels, max_length=self.max_length, segments=segments)
        return self._task(codec, self._tables.encode(tables, notes, partial(self._encode, codec)))

    def reload(self, saved: Saved) -> Task:
        """Read the test texts and encode them with the saved codec."""
        codec = saved.codec
        assert isinstance(codec, LabelledCodec)
        return self._task(codec, self._tables.encode_again(saved, partial(self._encode, codec)))

    @property
    def _tables(self) -> OwnTables:
        columns = Columns("text", "label", group=self.group, two_texts=True)
        paths = {"train": self.train, "validation": self.validation, "test": self.test}
        return OwnTables(
            columns=columns,
            read=lambda part: read_table(paths[part], columns),
            named=[part for part, path in paths.items() if path],
            fraction=self.validation_fraction,
            seed=self.seed,
            what="texts",
        )

    def _task(self, codec: LabelledCodec, found: Encoded) -> Task:
        return found.task("labelled", codec=codec, metric="classes", model_fields=codec.model_fields)

    def _encode(self, codec: LabelledCodec, table: TextTable, notes: list[str]) -> list[Example]:
        """Encode a table; how many of its texts are too long is added to `notes`."""
        classes = {label: index for index, label in enumerate(codec.labels)}
        examples = []
        if (found := _segments(table)) != codec.segments:
            raise UserError(
                f"{table.name}:{table.rows[0].line}: {found} text{'s' * (found > 1)} before the label; the training "
                f"file has {codec.segments}"
            )
        texts = codec.encode_many([row.first.split(BETWEEN) for row in table.rows])
        for row, ids in zip(table.rows, texts, strict=True):
            label = row.second.strip()
            if label not in classes:
                raise UserError(
                    f"{table.name}:{row.line}: unknown label {show(label)}; those of the training file are "
                    f"{', '.join(map(show, codec.labels[:20]))}{', …' * (len(codec.labels) > 20)}"
                )
            if len(ids) <= self.max_length:
                examples.append(codec.example(ids, classes[label], group=row.group))
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what="text")
        return examples


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
