"""Tables of rows of two text columns (`data.columns`), and rows of them held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice, zip_longest
from pathlib import Path

from universal_transformer.data.columns import (
    BETWEEN,
    CSV,
    JSON_LINES,
    TAB,
    Columns,
    TextRow,
    ending,
    records,
    refuse_separator,
)
from universal_transformer.errors import UserError
from universal_transformer.files import MAX_LINE, read_lines, show_path, try_lines


@dataclass(frozen=True)
class TextTable:
    """Rows of a source, none of which has a blank column."""

    name: str
    rows: tuple[TextRow, ...]
    notes: tuple[str, ...] = ()
    """How many lines were left out, and how many have quotes, if any."""
    keeps_texts: bool = False
    """Whether the examples of the rows have their texts too."""


@dataclass
class WholeRows:
    """Takes the rows of a source of which no column is blank, and counts the others."""

    name: str
    count: int = 0
    blank: int = 0
    quoted: int = 0
    """Rows that have a text in quotes."""
    tabs: int = 0
    """Rows that have a tab in their text."""
    last: int = 1
    """Number of the line of the last row."""

    def of(self, rows: Iterable[TextRow]) -> Iterator[TextRow]:
        """Yield the whole ones of the next rows."""
        for row in rows:
            self.count, self.last = self.count + 1, row.line
            if not (all(map(str.strip, row.first.split(BETWEEN))) and row.second.strip()):
                self.blank += 1
                continue
            self.quoted += len(row.first) > 1 and row.first[0] == row.first[-1] == '"'
            self.tabs += TAB in row.first
            yield row

    @property
    def notes(self) -> tuple[str, ...]:
        """What `TextTable.notes` are."""
        notes = []
        if self.blank:
            left_out = f"{self.blank:,} of {self.count:,} lines left out: blank or with an empty column"
            notes.append(f"{self.name}: {left_out}")
        plain = ending(self.name) not in (CSV, *JSON_LINES)
        if self.tabs and plain:
            notes.append(
                f"{self.name}: {self.tabs:,} of {self.count:,} rows have a tab in the text, which belongs to it"
            )
        if self.quoted and plain:
            notes.append(
                f"{self.name}: {self.quoted:,} of {self.count:,} rows have a text in quotes, which belong to it; with "
                r"the name .csv and --data.separator '\t' they would not"
            )
        return tuple(notes)


def read_table(path: str | Path, columns: Columns, *, max_line: int = MAX_LINE) -> TextTable:
    """Read the rows of a file as its name says (`data.columns`)."""
    return collect(show_path(path), table_rows(path, columns, max_line=max_line), columns=columns.names)


def table_rows(path: str | Path, columns: Columns, *, max_line: int = MAX_LINE) -> Iterator[TextRow]:
    """Yield the rows of a file as `read_table` reads it; a blank line is a row of empty texts."""
    name = show_path(path)
    for record in records(try_lines(path, max_line=max_line), columns, name=name):
        blank = not record.line and record.fault is None
        yield TextRow(record.number, "", "") if blank else columns.row(record, f"{name}:{record.number}")


def parallel_rows(first: str | Path, second: str | Path) -> Iterator[TextRow]:
    """Yield rows of the lines of one number of two files, without groups; UserError if one file is longer."""
    names = show_path(first), show_path(second)
    for left, right in zip_longest(read_lines(first), read_lines(second)):
        if left is None or right is None:
            longer, shorter = names if right is None else names[::-1]
            number = (left or right)[0]
            raise UserError(
                f"{longer}:{number}: no line {number} in {shorter}, which ends after {number - 1} lines; "
                "parallel files need as many lines as each other"
            )
        for name, (number, text) in zip(names, (left, right), strict=True):
            refuse_separator(text, f"{name}:{number}")
        yield TextRow(left[0], left[1], right[1])


MOST_ROWS = 4_000_000
"""Rows of a table in memory, where one takes about 260 bytes and its text."""


def collect(name: str, rows: Iterable[TextRow], *, columns: Sequence[str]) -> TextTable:
    """Return the table of all rows of which no column is blank; a UserError if there is none, or too many."""
    whole = WholeRows(name)
    kept = tuple(islice(whole.of(rows), MOST_ROWS + 1))
    if len(kept) > MOST_ROWS:
        raise UserError(f"{name}:{whole.last}: more than {MOST_ROWS:,} rows; use fewer of them in this file")
    if not kept:
        raise UserError(f"{name}:{whole.last}: no row with both {columns[0]} and {columns[1]}; expected at least one")
    return TextTable(name, kept, whole.notes)


@dataclass(frozen=True)
class HoldOut:
    """Which rows are held out: those whose first column has one of the smallest hashes, which depend on a seed.

    So rows with the same first column, apart from capitals and blanks (which a codec may not tell apart), are in the
    same part, and a row is in the same part wherever it stands.
    """

    seed: int
    largest: int
    """The largest hash that is held out."""

    @classmethod
    def drawn(cls, table: TextTable, *, share: float, seed: int) -> HoldOut:
        """Hold out `share` of the different first columns of the rows, but at least one and not all."""
        hashes = sorted({_hash(row.first, seed) for row in table.rows})
        if len(hashes) < 2:
            alike = "this is the only row" if len(table.rows) == 1 else "all rows have the same text"
            raise UserError(
                f"{table.name}:{table.rows[0].line}: {alike}, so none can be held out for validation; name a file with "
                "--data.validation"
            )
        return cls(seed, hashes[min(max(round(share * len(hashes)), 1), len(hashes) - 1) - 1])

    def __contains__(self, row: object) -> bool:
        return isinstance(row, TextRow) and _hash(row.first, self.seed) <= self.largest


def _hash(text: str, seed: int) -> int:
    key = " ".join(text.lower().split())
    return int.from_bytes(blake2b(f"{seed} {key}".encode(), digest_size=8).digest())


def check_file(field: str, value: str, *, needs: Sequence[str]) -> None:
    if not value:
        raise UserError(f"--data.{field} is not set; name a file: {' or '.join(needs)}")
