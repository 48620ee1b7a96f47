"""Data sets of the Hugging Face hub, and local Arrow folders, as lines or rows: ``hf:NAME[:CONFIG[:SPLIT]]``.

They are read in their order, once, and copied: a shuffled stream of the library would lose its buffer on a resume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.data.columns import Columns, Record, TextRow
from universal_transformer.errors import UserError, optional
from universal_transformer.files import MAX_LINE, one_line, show, show_path
from universal_transformer.typed import typed

if TYPE_CHECKING:
    import datasets

PREFIX = "hf:"


def is_hub(source: str) -> bool:
    return source.startswith(PREFIX)


def absolute(source: str) -> str:
    folder = Path(source.removeprefix(PREFIX))
    return f"{PREFIX}{folder.absolute()}" if folder.is_dir() else source


def bare(source: str) -> str:
    """Return the name of a local folder without those that it is in; a name on the hub as it is."""
    folder = Path(source.removeprefix(PREFIX))
    return f"{PREFIX}{folder.name}" if folder.is_absolute() else source


def fingerprint(source: str, *, part: str) -> str:
    """Return a text that changes with the content of a data set."""
    return str(_open(source, part=part)._fingerprint)


def lines(source: str, *, part: str, column: str = "text") -> Iterator[tuple[int, str]]:
    """Yield the lines of a column, numbered by row; a text of several lines is several lines."""
    for number, row in enumerate(_chosen(_open(source, part=part), [column], source=source), start=1):
        where = f"{show_path(source)}: row {number}"
        for text in typed(row[column], str, where=where, field=column).split("\n"):
            if len(text) > MAX_LINE or "\0" in text:
                raise UserError(f"{where}: a line of more than {MAX_LINE:,} characters, or with a NUL character")
            yield number, text.removesuffix("\r")


def rows(source: str, *, part: str, columns: Columns) -> Iterator[TextRow]:
    """Yield rows of the two columns, or of the column "translation" (its two languages, in their order)."""
    table = _open(source, part=part)
    translated = columns.read[0] not in table.column_names and "translation" in table.column_names
    names = ["translation", *[columns.group] * bool(columns.group)] if translated else columns.read
    for number, row in enumerate(_chosen(table, names, source=source), start=1):
        where = f"{show_path(source)}: row {number}"
        pair = row.pop("translation") if translated else {}
        if translated and (not isinstance(pair, dict) or len(pair) != 2):
            raise UserError(f"{where}: translation is {show(pair)}; expected texts in two languages")
        fields = row | dict(zip(columns.read, pair.values(), strict=False))
        texts = {name: one_line(text) if isinstance(text, str) else text for name, text in fields.items()}
        yield columns.row(Record(number, fields=texts), where)


def _chosen(table: datasets.Dataset, names: Sequence[str], *, source: str) -> datasets.Dataset:
    """The columns with these names; UserError if one is missing."""
    found = table.column_names
    if missing := [name for name in names if name not in found]:
        raise UserError(
            f"{show_path(source)}: no column {' or '.join(map(show, missing))}; found {show(sorted(found))}: choose "
            "columns with --data.columns, or name another data set"
        )
    return table.select_columns(list(names))


def _open(source: str, *, part: str) -> datasets.Dataset:
    name = source.removeprefix(PREFIX)
    library = optional("datasets", needed=f"{show_path(source)}: data sets of the hub need datasets", extra="hub")
    try:
        if Path(name).is_dir():
            found, split = library.load_from_disk(name), part
        else:
            path, config, split = [*name.split(":"), "", ""][:3]
            found, split = library.load_dataset(path, config or None), split or part
    except Exception as error:  # of many libraries: network, Arrow, YAML
        raise UserError(f"{show_path(source)}: cannot be loaded ({show(str(error), limit=200)})") from error
    if isinstance(found, library.DatasetDict):
        if split not in found:
            raise UserError(
                f"{show_path(source)}: no split {show(split)}; expected one of {', '.join(map(str, found))}"
            )
        found = found[split]
    dataset: datasets.Dataset = found
    return dataset
