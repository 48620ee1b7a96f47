"""Tables of two text columns from tab-separated or JSON-lines files, and rows of them held out.

TSV is unquoted: a line is split at its tabs, and no other character is special. In JSON lines every line is one object;
two of its keys are the columns, and other keys are ignored.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from universal_transformer.errors import UserError
from universal_transformer.files import parse_json, read_lines, show, show_path


class TextRow(NamedTuple):
    """One line of a file of two columns."""

    line: int
    first: str
    second: str


@dataclass(frozen=True)
class TextTable:
    """The rows of a file, and the number of its lines that were blank or had an empty column."""

    name: str
    rows: tuple[TextRow, ...]
    num_blank: int = 0

    @property
    def notes(self) -> list[str]:
        """Say how many lines were left out, if any were."""
        if not self.num_blank:
            return []
        total = len(self.rows) + self.num_blank
        return [f"{self.name}: {self.num_blank} of {total} lines left out: blank or with an empty column"]

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


def read_table(path: str | Path, columns: tuple[str, str]) -> TextTable:
    """Read a two-column file: ``.jsonl`` (or ``.jsonl.gz``) as JSON lines, everything else as TSV."""
    name = show_path(path)
    bare = str(path).removesuffix(".gz")
    split = _split_json if bare.endswith((".jsonl", ".ndjson")) else _split_tabs
    rows = (
        TextRow(n, *split(text, columns, f"{name}:{n}")) if text.strip() else TextRow(n, "", "")
        for n, text in read_lines(path)
    )
    return _collect(name, rows, columns=columns)


def read_parallel(first: str | Path, second: str | Path) -> TextTable:
    """Read two files whose lines of one number belong together; a `UserError` if one file is longer."""
    return _collect(show_path(first), _zip(first, second), columns=("source", "target"))


def _zip(first: str | Path, second: str | Path) -> Iterator[TextRow]:
    names = show_path(first), show_path(second)
    for left, right in zip_longest(read_lines(first), read_lines(second)):
        if left is None or right is None:
            longer, shorter = names if right is None else names[::-1]
            number = (left or right)[0]
            raise UserError(
                f"{longer}:{number}: no line {number} in {shorter}, which ends after {number - 1} lines; "
                "parallel files need as many lines as each other"
            )
        yield TextRow(left[0], left[1], right[1])


def _collect(name: str, rows: Iterator[TextRow], *, columns: tuple[str, str]) -> TextTable:
    kept = []
    last = 0
    for row in rows:
        last = row.line
        if row.first.strip() and row.second.strip():
            kept.append(row)
    if not kept:
        raise UserError(f"{name}:{max(last, 1)}: no row with both {columns[0]} and {columns[1]}; expected at least one")
    return TextTable(name=name, rows=tuple(kept), num_blank=last - len(kept))


def _split_tabs(text: str, columns: tuple[str, str], where: str) -> tuple[str, str]:
    parts = text.split("\t")
    if len(parts) != 2:
        raise UserError(
            f"{where}: found {len(parts)} column{'s' * (len(parts) != 1)} in {show(text)}; "
            f"expected 2, {columns[0]}<TAB>{columns[1]}"
        )
    return parts[0], parts[1]


def _split_json(text: str, columns: tuple[str, str], where: str) -> tuple[str, str]:
    fields = parse_json(text, where=where)
    expected = f'expected a JSON object with "{columns[0]}" and "{columns[1]}"'
    if not isinstance(fields, dict):
        raise UserError(f"{where}: found {show(fields)}; {expected}")
    for column in columns:
        if column not in fields:
            raise UserError(f"{where}: found the keys {show(sorted(fields))}; {expected}")
    first, second = (_text(fields[column], column, where) for column in columns)
    return first, second


def _text(value: object, column: str, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # labels are often numbers
    if not isinstance(value, str):
        raise UserError(f'{where}: "{column}" is {show(value)}; expected a string')
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise UserError(f'{where}: "{column}" has half of a surrogate pair; expected whole characters')
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
