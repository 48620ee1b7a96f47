"""Lines of a file to named columns: columns between separators, CSV, JSON lines, or lines of a form.

=============== =======================================================================================================
file            a row
=============== =======================================================================================================
``.jsonl``      an object; the names of columns are its keys, and other keys are ignored
``.csv``        columns with commas between them, some of them in quotes, as the module `csv` reads them
any other       columns with tabs between them, or with another separator; quotes are a part of the text
=============== =======================================================================================================

A first line with the names of the columns is no row; one name alone is such a line in ``.csv``. Without it, a row has
the columns of its task in their order, or those whose numbers are chosen.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from universal_transformer.errors import UserError, refuse, suggestion
from universal_transformer.files import MAX_LINE, Line, one_line, parse_object, show

BETWEEN = "\x1f"
"""Stands between two texts in one column of a row."""
GROUP = "group"
NO_GROUP = "(empty)"
"""Group of the rows whose column of groups is empty."""
TAB, COMMA = "\t", ","
CSV, JSON_LINES = ".csv", (".jsonl", ".ndjson")
IN_BRACES = re.compile(r"\{(\w*)\}")
AS_JSON = re.compile(r"\s*(\[?\s*\{|\[\s*$)")
Lines = Iterable[Line]


class Record(NamedTuple):
    """A row of a file as it is written, or what is wrong with it."""

    number: int
    """Of its first line."""
    line: str = ""
    """Empty for a blank line, and for one that cannot be read."""
    cells: Sequence[str] = ()
    """Its columns in their order, if no line names them."""
    fields: Mapping[str, Any] = MappingProxyType({})
    """Its columns by name or number, if a line or JSON names them."""
    fault: UserError | None = None


def ending(name: str | Path) -> str:
    """Return the ending of the name of a file in small letters, that of a ``.gz`` file without it."""
    return Path(str(name).lower().removesuffix(".gz")).suffix


class TextRow(NamedTuple):
    """One line of a file: two columns, and a group or ""."""

    line: int
    first: str
    second: str
    group: str = ""

    def texts(self) -> tuple[str, str]:
        """Both columns as they were written, two texts with a tab between them."""
        return self.first.replace(BETWEEN, TAB), self.second


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read, and what stands between them."""

    first: str
    second: str = ""
    """Empty where a row is one column."""
    group: str = ""
    """A further column, which groups figures: its name, or its number from 1 on."""
    two_texts: bool = False
    """Whether the first column may be two texts: two columns, or a JSON list."""
    words: bool = False
    """Whether a column may be a JSON list of words, which then have blanks between them."""
    between_labels: str = ""
    """What stands between the labels in the second column, where a row may have several; alone it stands for none."""
    chosen: str = ""
    """The columns of the file by name or number, if they are others: "source=1,target=3"."""
    separator: str = ""
    """What stands between columns if it is no tab, or in ``.csv`` no comma; or a whole line, with the names of its
    columns in braces."""

    def __post_init__(self) -> None:
        form, names = self.form, IN_BRACES.findall(self.separator)
        missing = [name for name in self.read if form and name not in names]
        refuse(
            (not all(form[1:-1]), "two columns with nothing between them"),
            (missing, f"no column {', '.join(missing)}; expected each in braces, such as {self._a_line}"),
            at=f"--data.separator {show(self.separator)}",
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (self.first, self.second) if self.second else (self.first,)

    @cached_property
    def places(self) -> Mapping[str, tuple[str, ...]]:
        """Name or number of the columns of the file that are read as each column, two as one of two texts."""
        places: dict[str, tuple[str, ...]] = {}
        for part in filter(None, self.chosen.split(",")):
            name, _, place = (word.strip() for word in part.partition("="))
            places[name] = (*places.get(name, ()), place)
            most = 2 if self.two_texts and name == self.first else 1
            refuse(
                (
                    name not in self.names or not place or len(places[name]) > most,
                    f"{show(part)}: expected the name or number of each column, such as {self._numbers}"
                    + f"; of two texts, {self.first} twice" * self.two_texts,
                ),
                at="--data.columns",
            )
        if places.keys() not in ({*self.names}, set()):
            raise UserError(f"--data.columns {show(self.chosen)}: expected all of {', '.join(self.names)}")
        return places or {name: (name,) for name in self.names}

    @cached_property
    def read(self) -> list[str]:
        """Name or number of all columns of the file that are read."""
        return [*(place for places in self.places.values() for place in places), *[self.group] * bool(self.group)]

    @cached_property
    def form(self) -> list[str]:
        """What stands before, between and after the columns of a line, if the separator is a whole line."""
        parts = IN_BRACES.split(self.separator)[::2]
        return parts if len(parts) > 1 else []

    @property
    def _numbers(self) -> str:
        """An example of what may be chosen."""
        return ",".join(f"{name}={number}" for number, name in enumerate(self.names, start=1))

    @property
    def _a_line(self) -> str:
        """An example of a separator that is a whole line."""
        return " ".join(f"{name.upper()}: {{{name}}}" for name in self.names)

    def written(self, row: TextRow) -> dict[str, str | list[str]]:
        texts = row.first.split(BETWEEN) if self.two_texts else [row.first]
        fields = {self.first: texts if len(texts) > 1 else row.first, self.second: row.second}
        return fields | ({GROUP: row.group} if self.group else {})

    @property
    def kept(self) -> Columns:
        """Columns of the rows that `written` returns."""
        return replace(self, group=GROUP if self.group else "", chosen="", separator="")

    def row(self, record: Record, where: str) -> TextRow:
        """Return both columns and the group of a row; UserError if it lacks one."""
        if record.fault:
            raise record.fault
        fields = self._by_number(record.cells, where) if record.cells else record.fields
        if missing := [place for place in self.read if place not in fields]:
            option = "--data.group" if missing == [self.group] else "--data.columns"
            if "1" in fields:
                names = [place for place in fields if not place.isdecimal()]
                found = f"the first line names the columns {show(names)}" if names else f"found {show([*record.cells])}"
                choice = f"{option} chooses others"
                choice = "--data.separator names what is between" if len(record.cells) == 1 else choice
                raise UserError(f"{where}: {found}; no column {missing[0]}; {choice}")
            expected = f"a JSON object with {' and '.join(map(json.dumps, self.read))}"
            found = f"found the keys {show(sorted(fields))}"
            raise UserError(f"{where}: {found}; expected {expected}; {option} chooses other keys")
        group = (self._text(fields[self.group], self.group, where) or NO_GROUP) if self.group else ""
        (second,) = self.places[self.second] if self.second else ("",)
        other = self._second(fields[second], second, where) if second else ""
        return TextRow(record.number, self._first(fields, where), other, group)

    def source(self, record: Record, where: str) -> str:
        """Return the first column of a row that may lack the others, as a line; two texts with a tab between them. A
        line that has not the form of the separator is a source itself.
        """
        cells = list(record.cells)
        if record.fault and not (record.line and self.form):
            raise record.fault
        if record.fault or not record.line:
            return record.line
        if cells and not self.chosen:
            without = int(self.group) - 1 if self.group.isdecimal() and len(cells) > len(self.names) else len(cells)
            rest = cells[:without] + cells[without + 1 :]
            most = 2 if self.two_texts else 1
            return TAB.join(rest[:most] if len(rest) == most + 1 else rest)
        if len(cells) == 1:
            return cells[0]
        fields = dict(_numbered(cells)) or record.fields
        if missing := [place for place in self.places[self.first] if place not in fields]:
            raise UserError(f"{where}: no column {missing[0]} in {show(cells or fields)}; expected the {self.first}")
        return one_line(self._first(fields, where).replace(BETWEEN, TAB))

    def _first(self, fields: Mapping[str, Any], where: str) -> str:
        texts = [(place, fields[place]) for place in self.places[self.first]]
        if self.two_texts and len(texts) == 1 and isinstance(texts[0][1], list) and len(texts[0][1]) == 2:
            texts = [(texts[0][0], text) for text in texts[0][1]]
        cells = [self._text(text, place, where) for place, text in texts]
        # a line has a tab between two texts, so that none may have one within
        return cells[0] if len(cells) == 1 else BETWEEN.join(cell.replace(TAB, " ") for cell in cells)

    def _second(self, value: object, column: str, where: str) -> str:
        """Return the second column as a text; labels of a JSON list have the separator between them."""
        separator = self.between_labels
        if not separator:
            return self._text(value, column, where)
        labels = [self._text(label, column, where) for label in value] if isinstance(value, list) else []
        if within := [label for label in labels if separator in label]:
            raise UserError(f"{where}: {show(separator)} in {show(within[0])}; --data.label-separator names another")
        text = separator.join(labels) if isinstance(value, list) else self._text(value, column, where)
        return text.strip() or separator

    def _text(self, value: object, column: str, where: str) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)  # labels are often numbers
        if self.words and isinstance(value, list) and all(isinstance(word, str) for word in value):
            value = " ".join("_".join(word.split()) for word in value)
        if not isinstance(value, str):
            raise UserError(f'{where}: "{column}" is {show(value)}; expected a string or a whole number')
        broken = any("\ud800" <= letter <= "\udfff" for letter in value)
        refuse((broken, "half of a surrogate pair; expected whole characters"), at=f'{where}: "{column}"')
        refuse_separator(value, where)
        return " ".join(value.split()) if self.words else one_line(value) if self.second else value

    def _by_number(self, cells: Sequence[str], where: str) -> dict[str, Any]:
        """Return the columns of a row of a file that does not name them; UserError if they are too many or few, unless
        some are chosen.
        """
        found = f"{len(cells)} column{'s' * (len(cells) != 1)} in {show(TAB.join(cells))}"
        if self.chosen:
            return dict(_numbered(cells))
        rest: list[Any] = list(cells)
        fields = {}
        if self.group:
            number = int(self.group) if self.group.isascii() and self.group.isdecimal() else 0
            if not 1 <= number <= len(rest):
                raise UserError(
                    f"{where}: --data.group {show(self.group)}; expected the number of a TSV column, 1 to {len(rest)}, "
                    "or '' for no groups"
                )
            fields[self.group] = rest.pop(number - 1).strip()
        if self.two_texts and len(rest) == len(self.names) + 1:
            rest = [rest[:2], *rest[2:]]
        if len(rest) != len(self.names):
            more = f", or two texts, {self.first}<TAB>{self.first}<TAB>{self.second}" if self.two_texts else ""
            more += ", and that of --data.group" if self.group else ""
            remedy = f"--data.columns {self._numbers} chooses columns"
            if len(cells) == 1:
                remedy = f"--data.separator names another separator, such as ';', or a line such as '{self._a_line}'"
            if AS_JSON.match(cells[0]):
                remedy = "the name of a file of JSON lines ends in .jsonl, and each line is one object"
            expected = f"{len(self.names)}, {'<TAB>'.join(self.names)}{more}"
            raise UserError(f"{where}: found {found}; expected {expected}; {remedy}")
        return fields | dict(zip(self.names, rest, strict=True))

    def cells(self, text: str, where: str) -> list[str]:
        if not self.form:
            return text.split(self.separator.replace(r"\t", TAB) or TAB)
        before, *between, after = self.form
        cells, rest = list[str](), text.removeprefix(before)
        fits = text.startswith(before) and rest.endswith(after)
        for literal in between:
            cell, there, rest = rest.partition(literal)
            cells, fits = [*cells, cell], fits and bool(there)
        if not fits:
            raise UserError(f"{where}: found {show(text)}; expected a line of the form {show(self.separator)}")
        return [*cells, rest.removesuffix(after)]


def records(lines: Lines, columns: Columns, *, name: str, inputs: bool = False) -> Iterator[Record]:
    """Yield the rows of the file `name`, without the line that names the columns; of `inputs` it names the first."""
    header: list[str] = []
    form, first = IN_BRACES.findall(columns.separator), True
    for record in _cut(columns, lines, name=name):
        cells, where = record.cells, f"{name}:{record.number}"
        if first and cells and not form:
            header = _header(columns, cells, where, inputs=inputs, alone=ending(name) == CSV)
            first = False
            for place in columns.read:
                again = header.count(place) > 1 + (columns.two_texts and columns.places[columns.first] == (place,))
                refuse((again, f"{header.count(place)} columns have the name {show(place)}; expected one"), at=where)
            if header:
                continue
        if header and cells and len(header) != len(cells):
            found = f"{len(cells)} columns in {show(TAB.join(cells))}"
            fault = UserError(f"{where}: found {found}; expected {len(header)}, as in the first line")
            yield record._replace(fault=fault)
        elif cells and (header or form):
            fields: dict[str, Any] = dict(_numbered(cells))
            for column, cell in zip(header or form, cells, strict=True):
                fields[column] = [fields[column], cell] if column in fields and columns.two_texts else cell
            yield record._replace(cells=(), fields=fields)
        else:
            yield record


def _header(columns: Columns, cells: Sequence[str], where: str, *, inputs: bool, alone: bool) -> list[str]:
    """Return the names of the columns, if they are the first line; ``alone``: also where it is one name."""
    found = [cell.strip() for cell in cells]
    if not columns.chosen:
        known = [name.lower() if name.lower() in columns.names else name for name in found]
        expected = {columns.first} if inputs else {*columns.names}
        return known if (alone or len(known) > 1) and expected.intersection(known) else []
    read = columns.places[columns.first] if inputs else columns.read
    named = [place for place in read if not place.isdecimal()]
    if len(found) == 1 and found[0] not in named:  # a file of the first column alone
        return []
    if missing := [place for place in named if place not in found]:
        near = suggestion(missing[0], found)
        raise UserError(f"{where}: no column {show(missing[0])} in {show(found)}{near}; expected the names of columns")
    return found if named else []


def _cut(columns: Columns, lines: Lines, *, name: str) -> Iterator[Record]:
    """Yield the columns of each line, or of each record of CSV; of a line of JSON what it says."""
    if ending(name) == CSV and not columns.form:
        yield from _csv(lines, name, separator=columns.separator.replace(r"\t", TAB) or COMMA)
        return
    is_json = ending(name) in JSON_LINES
    for number, text, fault in lines:
        if fault or not text.strip():
            yield Record(number, fault=fault)
            continue
        where = f"{name}:{number}"
        try:
            if is_json:
                yield Record(number, text, fields=parse_object(text, where=where))
            else:
                yield Record(number, text, columns.cells(text, where))
        except UserError as error:
            yield Record(number, "" if is_json else text, fault=error)


def _numbered(cells: Sequence[str]) -> Iterator[tuple[str, Any]]:
    yield from ((str(number), cell) for number, cell in enumerate(cells, start=1))


def _csv(lines: Lines, name: str, *, separator: str) -> Iterator[Record]:
    number = 0

    def text_lines() -> Iterator[str]:
        nonlocal number
        for number, text, fault in lines:  # noqa: B007
            if fault:
                raise fault
            yield f"{text}\n"

    if len(separator) != 1:
        raise UserError(f"--data.separator {show(separator)}: expected one character for {name}")
    csv.field_size_limit(MAX_LINE)
    reader, first = csv.reader(text_lines(), delimiter=separator, strict=True), 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{name}:{first}: no CSV ({error}); expected a quote after each quoted column") from error
        if cells is None:
            return
        blank = not "".join(cells).strip()
        yield Record(first) if blank else Record(first, TAB.join(cells), [*map(one_line, cells)])
        first = number + 1


def refuse_separator(text: str, where: str) -> None:
    """UserError for a text with the character that stands between two texts."""
    if BETWEEN in text:
        raise UserError(f"{where}: the control character 0x1f in {show(text)}; expected none")
