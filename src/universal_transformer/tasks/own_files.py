"""Your own files: tables of a source and a target column, for a new run and for a saved one.

Without a validation file, a part of the training table is held out. A run keeps these rows, so that it can be evaluated
when the training file has changed or is gone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.text_table import Columns, TextRow, TextTable, check_file, hold_out, read_table
from universal_transformer.data.token_store import TokenStore
from universal_transformer.files import MAX_WRITTEN_LINE
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import DeferredExamples, Examples
from universal_transformer.tasks.task import HeldOut, Saved, Task

PARTS = ("train", "validation", "test")


class OwnFiles(ABC):
    """Base of a task on rows of your own files; its fields say where they are."""

    FILES: ClassVar[tuple[str, ...]] = PARTS
    ROWS: ClassVar[str]
    """What a row is, in the plural."""
    needs: ClassVar[tuple[str, ...]] = ()
    """What a training file may have, for the message to a user who names none."""
    train: str
    validation: str
    test: str
    validation_fraction: float
    seed: int
    max_length: int

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns of a row."""

    def read(self, part: str) -> TextTable:
        """Read the table of a part that has one (`has`)."""
        return read_table(getattr(self, part), self.columns)

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
        given = {part: self.read(part) for part in PARTS if self.has(part)}
        tables, train, held_out = dict(given), given["train"], {}
        notes = train.notes
        if "validation" not in given:
            tables["train"], held = hold_out(train, fraction=self.validation_fraction, seed=self.seed)
            tables["validation"] = held
            notes.append(f"validation: {len(held.rows)} {self.ROWS} of {train.name} held out by seed {self.seed}")
            held_out = {"validation": [self.columns.written(row) for row in held.rows]}
        notes += [note for part, other in given.items() if part != "train" for note in other.notes]
        notes += self._test_notes()
        codec = self.learn(tables["train"].rows, train)
        examples: dict[str, Examples] = {part: self.encode(codec, table, notes) for part, table in tables.items()}
        return self._task(examples, codec, notes, held_out=held_out)

    def _stored(self, store: TokenStore, train: Examples, codec: Codec[Any, Any]) -> Task:
        """The task of a new run whose training part is in a store, which has the rows that were held out."""
        notes = list(store.index.notes)
        tables = {part: self.read(part) for part in PARTS[1:] if self.has(part)}
        for part, rows in store.index.held_out.items():
            kept = (TextRow(number, *self.columns.unwritten(row)) for number, row in enumerate(rows, start=1))
            tables[part] = TextTable(f"{part} (held out)", tuple(kept))
        notes += [note for table in tables.values() for note in table.notes] + self._test_notes()
        examples = {"train": train, **{part: self.encode(codec, table, notes) for part, table in tables.items()}}
        return self._task(examples, codec, notes, held_out=store.index.held_out)

    def _again(self, saved: Saved) -> Task:
        """The task of a saved run: what is scored is read, other parts are read when they are asked for."""
        scored = self._scored
        table = self._table(scored, saved)
        notes = [*table.notes, *self._test_notes()]

        def later(part: str) -> Examples:
            return DeferredExamples(lambda: self.encode(saved.codec, self._table(part, saved), []))

        examples = {part: later(part) for part in PARTS[:2]} | {scored: self.encode(saved.codec, table, notes)}
        return self._task(examples, saved.codec, notes)

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
            notes=(*notes, *self.caveats()),
            held_out=held_out or {},
        )

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        """Encode a table; how many of its rows are too long is added to `notes`."""
        places = [f"{table.name}:{row.line}" for row in table.rows]
        sources = codec.source.encode_many([row.first for row in table.rows], places)
        targets = codec.target.encode_many([row.second for row in table.rows], places)
        padding_id = codec.padding_id
        examples = [
            Example(source, target, row.group, written=self.written(row), padding_id=padding_id)
            for row, source, target in zip(table.rows, sources, targets, strict=True)
            if codec.source.fits(source) and codec.target.fits(target)
        ]
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what=self.ROWS.removesuffix("s"))
        unknown_id = codec.target.unknown_id
        if unknown_id is not None and (unknown := sum(unknown_id in target for target in targets)):
            notes.append(
                f"{table.name}: {unknown:,} of {len(targets):,} targets have parts that are not in the vocabulary; an "
                "answer never has them"
            )
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
        validation = read_table(saved.rows("validation"), self.columns.kept, max_line=MAX_WRITTEN_LINE)
        if part == "validation":
            return validation
        table, held = self.read("train"), {row.first for row in validation.rows}
        return TextTable(table.name, tuple(row for row in table.rows if row.first not in held))

    def _test_notes(self) -> list[str]:
        note = f"no test file: scores are those of the validation {self.ROWS}, which also chose the model"
        return [] if self.has("test") else [note]
