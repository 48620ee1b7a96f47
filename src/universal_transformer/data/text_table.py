"""Tables of two text columns from tab-separated or JSON-lines files, and rows of them held out.

TSV is unquoted: a line is split at its tabs, and no other character is special. In JSON lines every line is one object;
two of its keys are the columns, and other keys are ignored.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

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

    def written(self, row: TextRow) -> dict[str, str | list[str]]:
        """Return a row as an object of JSON lines, which `read_table` reads with the columns of `kept`."""
        texts = row.first.split(BETWEEN) if self.two_texts else [row.first]
        fields = {self.first: texts if len(texts) > 1 else row.first, self.second: row.second}
        return fields | ({GROUP: row.group} if self.group else {})

    def unwritten(self, fields: Mapping[str, str | list[str]]) -> tuple[str, str, str]:
        """Undo `written`: return both columns and the group."""
        texts = fields[self.first]
        first = texts if isinstance(texts, str) else BETWEEN.join(texts)
        return first, str(fields[self.second]), str(fields.get(GROUP, ""))

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
    """The rows of a file, and the number of its lines that were blank or had an empty column."""

    name: str
    rows: tuple[TextRow, ...]
    num_blank: int = 0
    header: TextRow | None = None
    """The first row that looks like the names of the columns."""

    @property
    def notes(self) -> list[str]:
        """Say how many lines were left out, if any were, and whether the first one may be no row."""
        notes = []
        if self.header:
            notes.append(header_note(self.header, self.name))
        return notes + self.blank_note

    @property
    def blank_note(self) -> list[str]:
        """Say how many lines were left out, if any were."""
        total = len(self.rows) + self.num_blank
        left_out = f"{self.name}: {self.num_blank} of {total} lines left out: blank or with an empty column"
        return [left_out] * bool(self.num_blank)

    def note_skipped(self, *, kept: int, max_length: int, what: str) -> list[str]:
        """Say how many rows were left out because of their length; a UserError if all were."""
        if not kept:
            raise UserError(
                f"{self.name}:{self.rows[0].line}: this and every other {what} is longer than --data.max-length "
                f"{max_length} tokens; expected at least one that is not"
            )
        total = len(self.rows)
        longer = f"longer than --data.max-length {max_length} tokens"
        return [f"{self.name}: {total - kept} of {total} examples left out: {longer}"] * (kept < total)


def read_table(path: str | Path, columns: Columns, *, max_line: int = MAX_LINE) -> TextTable:
    """Read a file: ``.jsonl`` (or ``.jsonl.gz``) as JSON lines, everything else as TSV."""
    table = collect(show_path(path), table_rows(path, columns, max_line=max_line), columns=columns.names)
    if columns.two_texts:
        _check_texts(table)
    return table


def table_rows(path: str | Path, columns: Columns, *, max_line: int = MAX_LINE) -> Iterator[TextRow]:
    """Yield the rows of a file as `read_table` reads it; a blank line is a row of empty texts."""
    name = show_path(path)
    bare = str(path).lower().removesuffix(".gz")
    split = _split_json if bare.endswith((".jsonl", ".ndjson")) else _split_tabs
    for n, text in read_lines(path, max_line=max_line):
        yield TextRow(n, *split(text, columns, f"{name}:{n}")) if text.strip() else TextRow(n, "", "")


def _check_texts(table: TextTable) -> None:
    """UserError for a row that has not as many texts as the first one."""
    expected = table.rows[0].first.count(BETWEEN) + 1
    for row in table.rows:
        if (found := row.first.count(BETWEEN) + 1) != expected:
            raise UserError(
                f"{table.name}:{row.line}: {found} text{'s' * (found > 1)} in this row; the first row, line "
                f"{table.rows[0].line}, has {expected}; expected as many in every row"
            )


def read_parallel(first: str | Path, second: str | Path) -> TextTable:
    """Read two files whose lines of one number belong together; a `UserError` if one file is longer."""
    return collect(show_path(first), parallel_rows(first, second), columns=("source", "target"))


def parallel_rows(first: str | Path, second: str | Path) -> Iterator[TextRow]:
    """Yield the rows of two files as `read_parallel` reads them, without groups."""
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


def is_whole(row: TextRow) -> bool:
    """Return whether neither column is blank."""
    return all(map(str.strip, row.first.split(BETWEEN))) and bool(row.second.strip())


def collect(name: str, rows: Iterable[TextRow], *, columns: tuple[str, str]) -> TextTable:
    """Return the table of all rows of which no column is blank; a UserError if there is none."""
    kept = []
    last, count = 1, 0
    for row in rows:
        last, count = row.line, count + 1
        if is_whole(row):
            kept.append(row)
    if not kept:
        raise no_rows(name, last, columns=columns)
    header = next((row for row in kept if is_header(row, columns)), None)
    return TextTable(name=name, rows=tuple(kept), num_blank=count - len(kept), header=header)


def is_header(row: TextRow, columns: tuple[str, str]) -> bool:
    """Return whether a row looks like the names of the columns."""
    return (row.first.strip().lower(), row.second.strip().lower()) == columns


def header_note(row: TextRow, name: str) -> str:
    """Return the note on a row that looks like the names of the columns."""
    text = show(f"{row.first} {row.second}")
    return f"{name}:{row.line}: {text} is used as a row; if it names the columns, remove it"


def no_rows(name: str, line: int, *, columns: tuple[str, str]) -> UserError:
    """Return the error for a file without a whole row up to its last line."""
    return UserError(f"{name}:{line}: no row with both {columns[0]} and {columns[1]}; expected at least one")


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
    fields = parse_json(text, where=where)
    needed = (*columns.names, *([columns.group] if columns.group else []))
    expected = f"expected a JSON object with {' and '.join(json.dumps(name) for name in needed)}"
    if not isinstance(fields, dict):
        raise UserError(f"{where}: found {show(fields)}; {expected}")
    for column in needed:
        if column not in fields:
            raise UserError(f"{where}: found the keys {show(sorted(fields))}; {expected}")
    match fields[columns.first]:
        case [first, second] if columns.two_texts:
            texts = BETWEEN.join(_text(one, columns.first, where) for one in (first, second))
        case found:
            texts = _text(found, columns.first, where)
    group = (_text(fields[columns.group], columns.group, where) or NO_GROUP) if columns.group else ""
    return texts, _text(fields[columns.second], columns.second, where), group


def _text(value: object, column: str, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # labels are often numbers
    if not isinstance(value, str):
        raise UserError(f'{where}: "{column}" is {show(value)}; expected a string')
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UserError(f'{where}: "{column}" has half of a surrogate pair; expected whole characters')
    _refuse_separator(value, f'{where}: "{column}"')
    return value


def hold_out(table: TextTable, *, fraction: float, seed: int) -> tuple[TextTable, TextTable]:
    """Split a table into (training, held out); rows with the same first column are in the same part.

    The held-out part is `fraction` of the different first columns (at least one), drawn by `seed` alone.
    """
    different = sorted({row.first for row in table.rows})
    if len(different) < 2:
        raise UserError(
            f"{table.name}:{table.rows[0].line}: all rows have the same text, so none can be held out for "
            "validation; name a file with --data.validation"
        )
    random.Random(seed).shuffle(different)
    chosen = set(different[: min(max(round(fraction * len(different)), 1), len(different) - 1)])
    return (
        TextTable(table.name, tuple(row for row in table.rows if row.first not in chosen)),
        TextTable(f"{table.name} (held out)", tuple(row for row in table.rows if row.first in chosen)),
    )


def check_file(field: str, value: str, *, needs: Sequence[str]) -> None:
    if not value:
        raise UserError(f"--data.{field} is not set; name a file: {' or '.join(needs)}")
