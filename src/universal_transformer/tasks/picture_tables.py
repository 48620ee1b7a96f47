"""Captions files: lines of ``picture<TAB>caption``, or JSON lines with these keys.

A picture is a file, named from the folder of the captions file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from universal_transformer.data.picture_files import note_changes
from universal_transformer.data.text_table import Columns, TextRow, TextTable, read_table
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.tables import OwnTables

COLUMNS = Columns("picture", "caption")


def read_captions(path: str | Path) -> TextTable:
    """Return the rows of a captions file with the absolute path of each picture; UserError for one that is missing."""
    table, folder = read_table(path, COLUMNS), Path(path).absolute().parent
    rows = []
    for row in table.rows:
        picture = folder / row.first.strip()
        if not picture.is_file():
            raise UserError(f"{table.name}:{row.line}: {show_path(picture)}: no such picture; this line names it")
        rows.append(row._replace(first=str(picture)))
    return replace(table, rows=tuple(rows))


@contextmanager
def naming(table: TextTable, row: TextRow) -> Iterator[None]:
    """Add the line of a captions file that names a picture to what is said of the picture."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{table.name}:{row.line}: {error}; this line names it") from error


def captions_tables(paths: Mapping[str, str], *, fraction: float, seed: int) -> OwnTables:
    """Return the tables of captions files by part; a part without a path has no file."""
    return OwnTables(
        columns=COLUMNS,
        read=lambda part: read_captions(paths[part]),
        named=[part for part, path in paths.items() if path],
        fraction=fraction,
        seed=seed,
        what="pictures",
    )


def changed_pictures(table: TextTable, *, height: int, width: int = 0) -> list[str]:
    """Return a note if pictures of a table are scaled or turned to grey when they are read."""
    changed: list[str] = []
    for row in table.rows:
        with naming(table, row):
            changed += filter(None, [note_changes(row.first, height=height, width=width)])
    if not changed:
        return []
    return [f"{table.name}: {len(changed):,} of {len(table.rows):,} pictures are changed; the first is {changed[0]}"]
