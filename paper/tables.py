"""The tables that can be measured, by name, and the choice of their rows."""

from __future__ import annotations

from collections.abc import Sequence

from paper.definition import ResultTable
from paper.depth_study import DEPTH
from paper.digits_study import DIGITS_STUDY
from paper.table1 import TABLE1
from paper.table2 import TABLE2
from paper.table3 import TABLE3
from paper.table4 import TABLE4
from paper.table5 import TABLE5, TABLE6
from paper.table7 import TABLE7
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show

TABLES: dict[str, ResultTable] = {
    table.name: table for table in (TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7, DEPTH, DIGITS_STUDY)
}
"""Every table by its name on the command line."""


def find_table(name: str) -> ResultTable:
    """Return a table by its name."""
    if name not in TABLES:
        raise UserError(
            f"no table {show(name)}{suggestion(name, TABLES)}; tables that can be reproduced: {', '.join(TABLES)}"
        )
    return TABLES[name]


def choose_rows(
    table: ResultTable,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    models: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> list[str]:
    """Return the names of the chosen rows, in the table's order; with no choice, all rows.

    `rows` are names, or beginnings of names up to a slash; `columns`, `models` and `tasks` are parts of names.
    """
    parts = {"columns": columns, "models": models, "tasks": tasks}
    if rows and any(parts.values()):
        raise UserError("--rows takes whole names of rows: leave out --columns, --models and --tasks")
    if rows:
        return _by_name(table, rows)
    found = list(table.rows)
    for place, (option, wanted) in enumerate(parts.items()):
        if not wanted:
            continue
        allowed = dict.fromkeys(row.split("/")[place] for row in table.rows if row.count("/") >= place)
        if not allowed:
            raise UserError(f"--{option}: the rows of {table.name} are named {table.naming}: leave it out")
        for name in wanted:
            if name not in allowed:
                raise UserError(
                    f"--{option}: no {show(name)}{suggestion(name, allowed)}; allowed: {', '.join(allowed)}"
                )
        found = [row for row in found if row.count("/") >= place and row.split("/")[place] in wanted]
    if empty := [column for column in columns if not any(row.startswith(f"{column}/") for row in found)]:
        raise UserError(f"--tasks: {', '.join(empty)} trains all tasks in one model: leave --tasks out, or the column")
    return found


def _by_name(table: ResultTable, rows: Sequence[str]) -> list[str]:
    chosen: set[str] = set()
    for name in rows:
        found = {row for row in table.rows if row == name or row.startswith(f"{name.rstrip('/')}/")}
        if not found:
            example = next(iter(table.rows))
            raise UserError(
                f"--rows: no row {show(name)}{suggestion(name, table.rows)}; rows are named "
                f"{table.naming}, such as {example}"
            )
        chosen |= found
    return [row for row in table.rows if row in chosen]
