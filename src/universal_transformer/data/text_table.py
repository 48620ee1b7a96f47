"""Tables of two text columns from tab-separated or JSON-lines files, and rows of them held out.

TSV is unquoted: a line is split at its tabs, and no other character is special. In JSON lines every line is one object;
two of its keys are the columns, and other keys are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from universal_transformer.errors import UserError
from universal_transformer.files import MAX_LINE, parse_json, read_lines, show, show_path

BETWEEN = "\x1f"
"""Stands between two texts in one column of a row."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read."""

    first: str
    second: str
    group: str = ""
    """A third column, which groups figures: a key of JSON lines, or the number of a TSV column, from 1 on."""
    two_texts: bool = False
    """Whether the first column may be two texts: two TSV columns, or a JSON list."""

    @property
    def names(self) -> tuple[str, str]:
        return self.first, self.second

    @property
    def read(self) -> list[str]:
        """All columns that are read."""
        return [*self.names, *[self.group] * bool(self.group)]

    def written(self, row: TextRow) -> dict[str, str | list[str]]:
        """Return a row as an object of JSON lines, which `read_table` reads with the columns of `kept`."""
        texts = row.first.split(BETWEEN) if self.two_texts else [row.first]
        fields = {self.first: texts if len(texts) > 1 else row.first, self.second: row.second}
        return fields | ({GROUP: row.group} if self.group else {})

    def of_fields(self, fields: Any, where: str) -> tuple[str, str, str]:
        """Return both columns and the group of a row of named columns; UserError if it is none."""
        expected = f"expected a JSON object with {' and '.join(json.dumps(name) for name in self.read)}"
        if not isinstance(fields, dict) or not fields.keys() >= {*self.read}:
            found = f"the keys {show(sorted(fields))}" if isinstance(fields, dict) else show(fields)
            raise UserError(f"{where}: found {found}; {expected}")
        first = fields[self.first]
        parts = first if self.two_texts and isinstance(first, list) and len(first) == 2 else [first]
        group = (_text(fields[self.group], self.group, where) or NO_GROUP) if self.group else ""
        texts = BETWEEN.join(_text(part, self.first, where) for part in parts)
        return texts, _text(fields[self.second], self.second, where), group

    @property
    def kept(self) -> Columns:
        """Columns of the rows that `written` returns."""
        return replace(self, group=GROUP if self.group else "")


GROUP = "group"
NO_GROUP = "(empty)"
"""Group of the rows whose column of groups is empty."""


class TextRow(NamedTuple):
    """One line of a file: two columns, and a group or ""."""

    line: int
    first: str
    second: str
    group: str = ""


@dataclass(frozen=True)
class TextTable:
    """Rows of a source, none of which has a blank column."""

    name: str
    rows: tuple[TextRow, ...]
    notes: tuple[str, ...] = ()
    """How many lines were left out, if any were, and whether one looks like the names of the columns."""


@dataclass
class WholeRows:
    """Takes the rows of a source of which no column is blank, and counts the others."""

    name: str
    columns: tuple[str, str]
    count: int = 0
    blank: int = 0
    last: int = 1
    """Number of the line of the last row."""
    header: TextRow | None = None
    """The first row that looks like the names of the columns."""

    def of(self, rows: Iterable[TextRow]) -> Iterator[TextRow]:
        """Yield the whole ones of the next rows."""
        for row in rows:
            self.count, self.last = self.count + 1, row.line
            if not (all(map(str.strip, row.first.split(BETWEEN))) and row.second.strip()):
                self.blank += 1
                continue
            if not self.header and (row.first.strip().lower(), row.second.strip().lower()) == self.columns:
                self.header = row
            yield row

    @property
    def notes(self) -> tuple[str, ...]:
        """What `TextTable.notes` are."""
        notes = []
        if self.header:
            text = show(f"{self.header.first} {self.header.second}")
            notes.append(f"{self.name}:{self.header.line}: {text} is used as a row; if it names the columns, remove it")
        if self.blank:
            left_out = f"{self.blank:,} of {self.count:,} lines left out: blank or with an empty column"
            notes.append(f"{self.name}: {left_out}")
        return tuple(notes)


def read_table(path: str | Path, columns: Columns, *, max_line: int = MAX_LINE) -> TextTable:
    """Read a file: ``.jsonl`` (or ``.jsonl.gz``) as JSON lines, everything else as TSV."""
    return collect(show_path(path), table_rows(path, columns, max_line=max_line), columns=columns.names)


def table_rows(path: str | Path, columns: Columns, *, max_line: int = MAX_LINE) -> Iterator[TextRow]:
    """Yield the rows of a file as `read_table` reads it; a blank line is a row of empty texts."""
    name = show_path(path)
    bare = str(path).lower().removesuffix(".gz")
    split = _split_json if bare.endswith((".jsonl", ".ndjson")) else _split_tabs
    for n, text in read_lines(path, max_line=max_line):
        yield TextRow(n, *split(text, columns, f"{name}:{n}")) if text.strip() else TextRow(n, "", "")


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
            _refuse_separator(text, f"{name}:{number}")
        yield TextRow(left[0], left[1], right[1])


MOST_ROWS = 4_000_000
"""Rows of a table in memory, where one takes about 260 bytes and its text."""


def collect(name: str, rows: Iterable[TextRow], *, columns: tuple[str, str]) -> TextTable:
    """Return the table of all rows of which no column is blank; a UserError if there is none, or too many."""
    whole = WholeRows(name, columns)
    kept = tuple(islice(whole.of(rows), MOST_ROWS + 1))
    if len(kept) > MOST_ROWS:
        raise UserError(f"{name}:{whole.last}: more than {MOST_ROWS:,} rows; use fewer of them in this file")
    if not kept:
        raise UserError(f"{name}:{whole.last}: no row with both {columns[0]} and {columns[1]}; expected at least one")
    return TextTable(name, kept, whole.notes)


def _refuse_separator(text: str, where: str) -> None:
    if BETWEEN in text:
        raise UserError(f"{where}: the control character 0x1f in {show(text)}; expected none")


def _split_tabs(text: str, columns: Columns, where: str) -> tuple[str, str, str]:
    _refuse_separator(text, where)
    parts, group = text.split("\t"), ""
    if columns.group:
        number = int(columns.group) if columns.group.isascii() and columns.group.isdecimal() else 0
        if not 1 <= number <= len(parts):
            raise UserError(
                f"{where}: --data.group {show(columns.group)}; expected the number of a TSV column, 1 to {len(parts)}, "
                "or '' for no groups"
            )
        group = parts.pop(number - 1).strip() or NO_GROUP
    if columns.two_texts and len(parts) == 3:
        parts = [BETWEEN.join(parts[:2]), parts[2]]
    if len(parts) != 2:
        more = f", or two texts, {columns.first}<TAB>{columns.first}<TAB>{columns.second}" if columns.two_texts else ""
        more += ", and that of --data.group" if columns.group else ""
        named = "; the name of a file of JSON lines ends in .jsonl" if text.lstrip().startswith("{") else ""
        raise UserError(
            f"{where}: found {len(parts)} column{'s' * (len(parts) != 1)} in {show(text)}; "
            f"expected 2, {columns.first}<TAB>{columns.second}{more}{named}"
        )
    return parts[0], parts[1], group


def _split_json(text: str, columns: Columns, where: str) -> tuple[str, str, str]:
    return columns.of_fields(parse_json(text, where=where), where)


def _text(value: object, column: str, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # labels are often numbers
    if not isinstance(value, str):
        raise UserError(f'{where}: "{column}" is {show(value)}; expected a string')
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UserError(f'{where}: "{column}" has half of a surrogate pair; expected whole characters')
    _refuse_separator(value, f'{where}: "{column}"')
    return value


@dataclass(frozen=True)
class HoldOut:
    """Which rows are held out: those whose first column has one of the smallest hashes, which depend on a seed.

    So rows with the same first column are in the same part, and a row is in the same part wherever it stands.
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
    return int.from_bytes(blake2b(f"{seed} {text}".encode(), digest_size=8).digest())


def check_file(field: str, value: str, *, needs: Sequence[str]) -> None:
    if not value:
        raise UserError(f"--data.{field} is not set; name a file: {' or '.join(needs)}")
