"""Your own labelled texts: one class for each text.

The data are files of ``text<TAB>label`` lines, or of JSON lines ``{"text": …, "label": …}``. The classes are the sorted
labels of the training file. A text ends with the id of ``<end>``, so that an empty line still has a position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from universal_transformer.data.example import NO_CLASS, Example
from universal_transformer.data.text_table import TextTable, check_file, read_table
from universal_transformer.data.tokenizer import END, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.codecs import SavedCodec, encode_lines, token_fields
from universal_transformer.tasks.tables import Encoded, OwnTables
from universal_transformer.tasks.task import Codec, Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Share, check

COLUMNS = ("text", "label")
MAX_LABELS = 10_000


@dataclass(frozen=True)
class LabelledCodec(SavedCodec):
    """A tokeniser, the labels in the order of their classes, and the limit of a text."""

    kind: ClassVar[str] = "labelled"
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    max_length: int

    def __post_init__(self) -> None:
        if list(self.labels) != sorted(set(self.labels)):
            raise UserError(f"labels: found {show(self.labels)}; expected different strings, sorted")

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the tokenizer and the labels."""
        return token_fields("classifier", size=len(self.tokenizer), num_classes=len(self.labels))

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without a class for every line, an empty one included."""
        for ids in encode_lines(lines, self.tokenizer, name=name, what="text", limit=self.max_length):
            yield Example(source=ids, target=NO_CLASS)

    def render(self, target: int | Sequence[int]) -> str:
        assert isinstance(target, int), "a target is one class"
        return "<unknown>" if target == NO_CLASS else self.labels[target]

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self.tokenizer.spans(text)

    def words(self, example: Example) -> list[str]:
        return [self.tokenizer.label(index) for index in example.source if isinstance(index, int)]


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """Texts from your own files, each with a class."""

    codec_class: ClassVar[type[Codec]] = LabelledCodec
    train: str = ""
    """Training texts: a file of `text<TAB>label` lines, or JSON lines (.jsonl) with "text" and "label". Any
    file may end in .gz."""
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
            [row.first for row in tables["train"].rows],
            vocabulary_size=self.vocabulary_size,
            lower_case=self.lower_case,
        )
        codec = LabelledCodec(tokenizer=tokenizer, labels=labels, max_length=self.max_length)
        return self._task(codec, self._tables.encode(tables, notes, partial(self._encode, codec)))

    def reload(self, saved: Saved) -> Task:
        """Read the test texts and encode them with the saved codec."""
        codec = saved.codec
        assert isinstance(codec, LabelledCodec)
        return self._task(codec, self._tables.encode_again(saved, partial(self._encode, codec)))

    @property
    def _tables(self) -> OwnTables:
        paths = {"train": self.train, "validation": self.validation, "test": self.test}
        return OwnTables(
            columns=COLUMNS,
            read=lambda part: read_table(paths[part], COLUMNS),
            named=[part for part, path in paths.items() if path],
            fraction=self.validation_fraction,
            seed=self.seed,
            what="texts",
        )

    def _task(self, codec: LabelledCodec, found: Encoded) -> Task:
        return Task(
            name="labelled",
            codec=codec,
            train=found.train,
            validation=found.validation,
            test=found.test,
            metric="classes",
            model_fields=codec.model_fields,
            notes=found.notes,
            held_out=found.held_out,
        )

    def _encode(self, codec: LabelledCodec, table: TextTable, notes: list[str]) -> list[Example]:
        """Encode a table; how many of its texts are too long is added to `notes`."""
        classes = {label: index for index, label in enumerate(codec.labels)}
        examples = []
        texts = codec.tokenizer.encode_many([row.first for row in table.rows])
        for row, ids in zip(table.rows, texts, strict=True):
            label = row.second.strip()
            if label not in classes:
                raise UserError(
                    f"{table.name}:{row.line}: unknown label {show(label)}; those of the training file are "
                    f"{', '.join(map(show, codec.labels[:20]))}{', …' * (len(codec.labels) > 20)}"
                )
            if len(ids) < self.max_length:
                examples.append(Example(source=(*ids, END), target=classes[label]))
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what="text")
        return examples


def _labels(table: TextTable) -> tuple[str, ...]:
    labels = tuple(sorted({row.second.strip() for row in table.rows}))
    where = f"{table.name}:{table.rows[-1].line}"
    if len(labels) < 2:
        raise UserError(f"{where}: up to this last line one label only, {show(labels[0])}; expected at least two")
    if len(labels) > MAX_LABELS:
        raise UserError(
            f"{where}: {len(labels):,} different labels up to this last line; expected at most "
            f"{MAX_LABELS:,} (are the columns swapped?)"
        )
    return labels
