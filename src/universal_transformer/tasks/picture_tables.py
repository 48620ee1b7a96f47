"""Captions files: lines of ``picture<TAB>caption``, or JSON lines with these keys.

A picture is a file, named from the folder of the captions file.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from universal_transformer.data.picture_files import note_changes
from universal_transformer.data.text_table import Columns, TextTable, read_table
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.own_files import OwnFiles
from universal_transformer.tasks.task import Saved, Task

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


class OwnPictures(OwnFiles):
    """Base of a task on a captions file: a picture and a caption a row, or handwritten digits without one."""

    ROWS: ClassVar = "pictures"
    columns = COLUMNS

    def read(self, part: str) -> TextTable:
        return read_captions(getattr(self, part))

    def load(self, saved: Saved | None = None) -> Task:
        """Read the pictures; of a new run, tokens of captions are learned from the training part."""
        return super().load(saved) if self.train else self.digits(saved)

    @abstractmethod
    def digits(self, saved: Saved | None) -> Task:
        """The task on handwritten digits."""


def changed_pictures(table: TextTable, *, height: int, width: int = 0) -> list[str]:
    """Return a note if pictures of a table are scaled or turned to grey when they are read."""
    changed: list[str] = []
    for row in table.rows:
        try:
            changed += filter(None, [note_changes(row.first, height=height, width=width)])
        except UserError as error:
            raise UserError(f"{table.name}:{row.line}: {error}; this line names it") from error
    if not changed:
        return []
    return [f"{table.name}: {len(changed):,} of {len(table.rows):,} pictures are changed; the first is {changed[0]}"]
