"""The tables of a task on your own files: training, validation and test, for a new run and for a saved one.

Without a validation file, a part of the training table is held out. A run keeps these rows, so that it can be evaluated
when the training file has changed or is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from universal_transformer.data.example import Example
from universal_transformer.data.text_table import Columns, TextRow, TextTable, hold_out, read_table
from universal_transformer.data.token_store import TokenStore
from universal_transformer.files import MAX_WRITTEN_LINE
from universal_transformer.tasks.lazy import DeferredExamples, Examples
from universal_transformer.tasks.task import Codec, HeldOut, Saved, Task

Encode = Callable[[TextTable, list[str]], Sequence[Example]]
"""Turns a table into examples, and adds how many rows were left out to the notes."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The examples of a task; the fields are those of `Task`."""

    train: Examples
    validation: Examples
    test: Mapping[str, Sequence[Example]]
    notes: tuple[str, ...]
    held_out: HeldOut = field(default_factory=dict)

    def task(self, name: str, *, codec: Codec, metric: str, model_fields: Mapping[str, Any]) -> Task:
        """Return the task that has these examples."""
        return Task(
            name=name,
            codec=codec,
            train=self.train,
            validation=self.validation,
            test=self.test,
            metric=metric,
            model_fields=model_fields,
            notes=self.notes,
            held_out=self.held_out,
        )


@dataclass(frozen=True, kw_only=True)
class OwnTables:
    """Where the tables of a task come from."""

    columns: Columns
    read: Callable[[str], TextTable]
    """Reads the file of a part."""
    named: Collection[str]
    """Parts with a file of their own; "train" is one of them."""
    fraction: float
    """Part of the training table that is held out if no validation file is named."""
    seed: int
    """Seed of what is held out."""
    what: str
    """What a row is, in the plural."""

    def given(self) -> dict[str, TextTable]:
        """Read all files that are named."""
        return {part: self.read(part) for part in ("train", "validation", "test") if part in self.named}

    def split(self, given: Mapping[str, TextTable]) -> tuple[dict[str, TextTable], list[str]]:
        """Return the parts of a new run, and notes on them."""
        table, tables = given["train"], dict(given)
        notes = table.notes
        if "validation" not in given:
            tables["train"], tables["validation"] = hold_out(table, fraction=self.fraction, seed=self.seed)
            held = len(tables["validation"].rows)
            notes.append(f"validation: {held} {self.what} of {table.name} held out by seed {self.seed}")
        notes += [note for part, other in given.items() if part != "train" for note in other.notes]
        return tables, notes + self._test_notes()

    def encode(self, tables: Mapping[str, TextTable], notes: list[str], encode: Encode) -> Encoded:
        """Encode all parts of a new run."""
        examples = {part: encode(table, notes) for part, table in tables.items()}
        return self._encoded(examples, notes, held_out=self._rows(tables["validation"]))

    def encode_others(self, store: TokenStore, train: Examples, encode: Encode) -> Encoded:
        """Encode the parts of a new run whose training part is in a store, and has the rows that were held out."""
        notes = list(store.index.notes)
        tables = {part: self.read(part) for part in ("validation", "test") if part in self.named}
        for part, rows in store.index.held_out.items():
            pairs = (TextRow(n, *self.columns.unwritten(row)) for n, row in enumerate(rows, start=1))
            tables[part] = TextTable(f"{part} (held out)", tuple(pairs))
        notes += [note for table in tables.values() for note in table.notes] + self._test_notes()
        examples = {"train": train, **{part: encode(table, notes) for part, table in tables.items()}}
        return self._encoded(examples, notes, held_out=store.index.held_out)

    def _encoded(self, examples: Mapping[str, Examples], notes: Sequence[str], *, held_out: HeldOut) -> Encoded:
        """Return the parts as a task has them: without a test, the validation is scored."""
        return Encoded(
            train=examples["train"],
            validation=examples["validation"],
            test={self._scored: examples[self._scored]},
            notes=tuple(notes),
            held_out=held_out,
        )

    def encode_again(self, saved: Saved, encode: Encode) -> Encoded:
        """Read and encode the test of a saved run; the other parts are read when they are asked for."""
        table = self._table(self._scored, saved)
        notes = [*table.notes, *self._test_notes()]
        scored = encode(table, notes)
        train, validation = (
            DeferredExamples(lambda part=part: encode(self._table(part, saved), []))  # type: ignore[misc]
            for part in ("train", "validation")
        )
        return Encoded(
            train=train,
            validation=scored if self._scored == "validation" else validation,
            test={self._scored: scored},
            notes=tuple(notes),
        )

    @property
    def _scored(self) -> str:
        return "test" if "test" in self.named else "validation"

    def _table(self, part: str, saved: Saved) -> TextTable:
        if part in self.named and (part != "train" or "validation" in self.named):
            return self.read(part)
        validation = read_table(saved.rows("validation"), self.columns.kept, max_line=MAX_WRITTEN_LINE)
        if part == "validation":
            return validation
        table, held = self.read("train"), {row.first for row in validation.rows}
        return TextTable(table.name, tuple(row for row in table.rows if row.first not in held))

    def _rows(self, validation: TextTable) -> HeldOut:
        """Return the rows that are held out of the training table as JSON objects, which `read_table` reads."""
        if "validation" in self.named:
            return {}
        return {"validation": [self.columns.written(row) for row in validation.rows]}

    def _test_notes(self) -> list[str]:
        note = f"no test file: scores are those of the validation {self.what}, which also chose the model"
        return [] if "test" in self.named else [note]
