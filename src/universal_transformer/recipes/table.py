"""What a table is: rows by name, each a recipe, and a way to write results beside the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from universal_transformer.recipes.results import Result
from universal_transformer.training.config import RunConfig

NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper."""

    name: str
    title: str
    naming: str
    """How rows are named, such as COLUMN/MODEL/TASK."""
    rows: Mapping[str, Callable[[], RunConfig]]
    """Name of a row -> the configuration of its runs, with seed 0."""
    render: Callable[[Sequence[Result]], str]
    """The whole table as Markdown."""


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table as lines; a | in a cell is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in cells),
        "",
    ]


__all__ = ["NOT_MEASURED", "Table", "markdown"]
