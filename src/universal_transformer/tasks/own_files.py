"""Your own files: tables of a source and a target column, for a new run and for a saved one.

Without a validation file, a part of the training table is held out. A run keeps these rows, so that it can be evaluated
when the training file has changed or is gone.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from universal_transformer.data.columns import Columns, Lines, TextRow, records
from universal_transformer.data.example import Example
from universal_transformer.data.text_table import HoldOut, TextTable, check_file, read_table
from universal_transformer.data.tokenizer_files import ENDINGS
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import MAX_WRITTEN_LINE, Line, show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import DeferredExamples, Examples
from universal_transformer.tasks.sides.side import unknown_name
from universal_transformer.tasks.task import HeldOut, Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Share

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Encoded:
    """The training part of a new run."""

    examples: Examples
    notes: Sequence[str]
    held_out: tuple[TextRow, ...]
    """Rows that are held out of it to validate on."""


@dataclass(frozen=True, kw_only=True)
class OwnFiles(ABC):
    """Base of a task on rows of your own files; its fields say where they are."""

    FILES: ClassVar[tuple[str, ...]] = PARTS
    ROWS: ClassVar[str]
    """What a row is, in the plural."""
    ANSWERS_AS_ROWS: ClassVar[bool] = True
    """Whether an answer is written as the second column of a row is."""
    needs: ClassVar[tuple[str, ...]] = ()
    """What a training file may have, for the message to a user who names none."""
    train: str = ""
    """Rows to train on."""
    validation: str = ""
    """Rows to validate on, like `train`; without it a part of the training rows is held out."""
    test: str = ""
    """Test rows, like `train`; without it the validation rows are scored."""
    columns: str = ""
    """Columns of the file by name or number: "source=1,target=3" of pairs, "text=1,label=3" of texts with labels. Names
    are the keys of JSON lines, or stand in the first line of other files. A file that ends in .csv may have columns in
    quotes."""
    separator: str = ""
    """What stands between columns (default: a tab, in .csv a comma), or a whole line with the names of its columns in
    braces: "IN: {source} OUT: {target}" of pairs."""
    vocabulary_size: int = 20_000
    """At most so many different tokens."""
    max_length: AtLeastTwo = 256
    """Tokens of the longest source or target, <end> included; longer rows are left out and counted."""
    validation_fraction: Share = 0.05
    """Part of the training rows held out if no validation file is named."""
    seed: NumberOf = 0
    """Seed of what is held out."""

    def unread(self) -> Iterator[tuple[str, str]]:
        """The fields that change nothing, whatever their value, and why."""
        if self.has("validation"):
            held_out = ("validation_fraction", "seed") if self.train else ("validation_fraction",)
            yield from ((field, "nothing is held out of the training rows") for field in held_out)
        tokenizers = [value for field in self.FILES if field.endswith("tokenizer") and (value := getattr(self, field))]
        if tokenizers and all(value.endswith(ENDINGS) for value in tokenizers):
            yield "vocabulary_size", "a tokenizer file has its vocabulary"

    @property
    @abstractmethod
    def layout(self) -> Columns:
        """The columns of a row."""

    def inputs(self, lines: Lines, *, name: str, codec: Codec[Any, Any]) -> Iterator[Line]:
        """Yield the input of each row of the file `name`, which may lack the answers, as a line of text."""
        del codec
        yield from input_lines(lines, self.layout, name=name)

    def read(self, part: str) -> TextTable:
        return read_table(getattr(self, part), self.layout)

    def has(self, part: str) -> bool:
        """Whether a part has a table of its own."""
        return bool(getattr(self, part))

    @abstractmethod
    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Any, Any]:
        """Learn the codec from the rows to train on; `given` also has those that are held out."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the task."""

    @property
    @abstractmethod
    def scored_by(self) -> str:
        """The name of the metric."""

    def caveats(self) -> Iterator[str]:
        """Say what scores do not mean."""
        yield from ()

    def load(self, saved: Saved | None = None) -> Task:
        """Read the files and encode them, of a new run with the codec that is learned from its training part."""
        return self._again(saved) if saved else self._new()

    def _new(self) -> Task:
        if not self.has("train"):
            check_file("train", self.train, needs=self.needs)
        codec, train = self.encode_train()
        notes, tables = list(train.notes), {part: self.read(part) for part in PARTS[1:] if self.has(part)}
        if train.held_out:
            tables["validation"] = TextTable(f"{show_path(self.train)} (held out)", train.held_out)
        notes += [note for table in tables.values() for note in table.notes]
        examples: dict[str, Examples] = {part: self.encode(codec, table, notes) for part, table in tables.items()}
        held_out = [self.layout.written(row) for row in train.held_out]
        kept = {"validation": held_out} if held_out else {}
        return self._task(examples | {"train": train.examples}, codec, notes, held_out=kept)

    def encode_train(self) -> tuple[Codec[Any, Any], Encoded]:
        """Read the training part of a new run, learn its codec, and encode it."""
        table = self.read("train")
        draw = self.hold_out(table)
        held = tuple(row for row in table.rows if row in draw)
        rows = tuple(row for row in table.rows if row not in draw)
        codec, notes = self.learn(rows, table), [*table.notes, *self.held_note(len(held), table.name)]
        return codec, Encoded(self.encode(codec, TextTable(table.name, rows), notes), notes, held)

    def encode_train_again(self, saved: Saved) -> Examples:
        return self.encode(saved.codec, self._table("train", saved), [])

    def hold_out(self, table: TextTable, *, most: float = 1.0) -> Container[TextRow]:
        """Choose what is held out of the training part if there is no validation part, at most this share of it."""
        if self.has("validation"):
            return ()
        return HoldOut.drawn(table, share=min(most, self.validation_fraction), seed=self.seed)

    def held_note(self, count: int, name: str) -> list[str]:
        return [f"validation: {count} {self.ROWS} of {name} held out by seed {self.seed}"] * bool(count)

    def _again(self, saved: Saved) -> Task:
        """The task of a saved run: what is scored is read, other parts are read when they are asked for."""
        scored = self._scored
        table = self._table(scored, saved)
        notes = [*table.notes]
        examples: dict[str, Examples] = {
            "train": DeferredExamples(lambda: self.encode_train_again(saved)),
            "validation": DeferredExamples(lambda: self.encode(saved.codec, self._table("validation", saved), [])),
        }
        tests = self.encode(saved.codec, replace(table, keeps_texts=self.ANSWERS_AS_ROWS), notes)
        return self._task(examples | {scored: tests}, saved.codec, notes)

    def _task(
        self,
        examples: Mapping[str, Examples],
        codec: Codec[Any, Any],
        notes: Sequence[str],
        *,
        held_out: HeldOut | None = None,
    ) -> Task:
        """The task of the examples by part; without a test, the validation is scored."""
        return Task(
            name=self.name,
            codec=codec,
            train=examples["train"],
            validation=examples["validation"],
            test={self._scored: examples[self._scored]},
            metric=self.scored_by,
            notes=tuple(dict.fromkeys((*notes, *self._test_notes(), *self.caveats()))),  # once of a file for two parts
            test_notes=tuple(self._test_notes()),
            held_out=held_out or {},
        )

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        """Encode a table; how many of its rows are too long is added to `notes`."""
        encoder = RowEncoder(self, codec, table.name, keeps_texts=table.keeps_texts)
        examples = encoder(table.rows)
        notes += encoder.notes()
        return examples

    def written(self, row: TextRow) -> tuple[str, str] | None:
        """The texts of a row, where answers are compared with them."""
        del row
        return None

    @property
    def _scored(self) -> str:
        return "test" if self.has("test") else "validation"

    def _table(self, part: str, saved: Saved) -> TextTable:
        if self.has(part) and (part != "train" or self.has("validation")):
            return self.read(part)
        validation = read_table(saved.rows("validation"), self.layout.kept, max_line=MAX_WRITTEN_LINE)
        if part == "validation":
            return validation
        table, held = self.read("train"), {row.first for row in validation.rows}
        return TextTable(table.name, tuple(row for row in table.rows if row.first not in held))

    def _test_notes(self) -> list[str]:
        note = f"no test file: scores are those of the validation {self.ROWS}, which also chose the model"
        return [] if self.has("test") else [note]


@dataclass
class RowEncoder:
    """Rows of one source to examples; counts those that are too long."""

    data: OwnFiles
    codec: Codec[Any, Any]
    name: str
    keeps_texts: bool = False
    first: int = 1
    """Number of the line of the first row."""
    rows: int = 0
    kept: int = 0
    unknown: int = 0
    """Targets with parts that are not in the vocabulary."""

    def __call__(self, rows: Sequence[TextRow]) -> list[Example]:
        source, target, padding_id = self.codec.source, self.codec.target, self.codec.padding_id
        places = [f"{self.name}:{row.line}" for row in rows]
        sources = source.encode_many([row.first for row in rows], places)
        targets = target.encode_many([row.second for row in rows], places)
        written = TextRow.texts if self.keeps_texts else self.data.written
        examples = [
            Example(source_ids, target_ids, row.group, written=written(row), padding_id=padding_id)
            for row, source_ids, target_ids in zip(rows, sources, targets, strict=True)
            if source.fits(source_ids) and target.fits(target_ids)
        ]
        self.first = rows[0].line if rows and not self.rows else self.first
        self.rows, self.kept = self.rows + len(rows), self.kept + len(examples)
        if target.unknown_id is not None:
            self.unknown += sum(target.unknown_id in target_ids for target_ids in targets)
        return examples

    def notes(self) -> list[str]:
        """Say how many rows were left out because of their length, and how many are not known whole; a UserError if
        all were left out.
        """
        longer = f"longer than --data.max-length {self.data.max_length} tokens"
        if not self.kept:
            raise UserError(
                f"{self.name}:{self.first}: this and every other {self.data.ROWS.removesuffix('s')} is {longer}; "
                "expected at least one that is not"
            )
        notes, long = [], self.rows - self.kept
        if long:
            notes.append(f"{self.name}: {long:,} of {self.rows:,} examples left out: {longer}")
        if self.unknown:
            notes.append(
                f"{self.name}: {self.unknown:,} of {self.rows:,} targets have parts that are not in the vocabulary; an "
                "answer never has them"
            )
        return notes


def input_lines(lines: Lines, columns: Columns, *, name: str) -> Iterator[Line]:
    """Yield the first column of each row as a line of text, which is empty for a blank line."""
    for record in records(lines, columns, name=name, inputs=True):
        try:
            yield Line(record.number, columns.source(record, f"{name}:{record.number}"))
        except UserError as error:
            yield Line(record.number, fault=error)


def classes(names: Iterable[str], table: TextTable, *, what: str, least: int = 2, most: int) -> tuple[str, ...]:
    """Return the different names of a training table in their order; UserError for too few or too many of them."""
    different = tuple(sorted(set(names)))
    where = f"{table.name}:{table.rows[-1].line}"
    if len(different) < least:
        only = f"one {what} only, {show(different[0])}" if different else f"no {what}"
        found = "; ".join([f"{where}: up to this last row {only}", *table.notes])
        raise UserError(f"{found}; expected at least {('one', 'two')[least - 1]}")
    if len(different) > most:
        found = f"{len(different):,} different {what}s up to this last row"
        raise UserError(f"{where}: {found}; expected at most {most:,} (--data.columns names another column)")
    return different


def class_weights(choice: str, labels: Sequence[str], counts: Mapping[int, int], *, what: str) -> list[float]:
    """Return ``w_c / Σ_c n_c w_c / n`` for each class, of which there are ``n_c`` texts or tokens among n; "balanced"
    is ``w_c = 1 / n_c``.
    """
    given = [1 / counts.get(index, 1) for index in range(len(labels))]
    if choice != "balanced":
        words, where = {}, "--data.class-weights"
        for part in choice.split(","):
            label, _, weight = part.rpartition("=")
            is_weight = bool(re.fullmatch(r"\d+(\.\d+)?", weight)) and float(weight) > 0
            wrong = "=" not in part or (label in labels and not is_weight)
            refuse(
                (wrong, f"{show(part)}; expected balanced, or {what.upper()}=WEIGHT above 0"),
                (label not in labels, unknown_name(label, labels, what=what, remedy="")),
                at=where,
            )
            words[label] = weight
        given = [float(words.get(label, 1)) for label in labels]
    mean = sum(given[index] * count for index, count in counts.items()) / sum(counts.values())
    return [weight / mean for weight in given]
