"""What a table is: rows by name, each a recipe, and a way to write results beside the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from universal_transformer.recipes.paper import Cell
from universal_transformer.recipes.results import Figures, Result
from universal_transformer.training.config import RunConfig

if TYPE_CHECKING:
    from universal_transformer.registry import Model
    from universal_transformer.tasks.task import Task

Curves = dict[str, dict[int, list[float]]]
"""Title of a curve -> steps -> the figure of each seed."""

NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the paper, or one of our own."""

    name: str
    title: str
    naming: str
    """How rows are named, such as COLUMN/MODEL/TASK."""
    rows: Mapping[str, Callable[[], RunConfig]]
    """Name of a row -> the configuration of its runs, with seed 0."""
    render: Callable[[Sequence[Result]], str]
    """The whole table as Markdown."""
    measure: Callable[[Model, Task], Figures] | None = None
    """How a trained model is measured, if not by the scores of its task on the test sets."""
    curves: Callable[[Sequence[Result]], Curves] | None = None
    """What of it is plotted."""
    headline: str = ""
    """Group of the test set that says in a word what a run came to; empty: the mean over all groups."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a grid: whose runs give its figures, and which of their scores."""

    run: str
    """First part of the names of its rows; the second one is the model."""
    metrics: tuple[str, ...]
    """Scores of a cell, in the order of the paper's figures."""
    group: str = ""
    """Group of the test set, or test set; of a set with groups, or if empty: the mean over the groups, weighted
    by their examples."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Models × columns: the paper's figures, if it has any, and ours below them."""

    title: str
    models: Mapping[str, str]
    """Second part of the names of its rows -> title."""
    columns: Mapping[str, Column]
    """By title."""
    printed: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    """Model -> the paper's figures, a cell for each column."""
    source: str = ""
    """Where they are printed."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What the Markdown of a table consists of; a table and its printed figures are data, one renderer shows them."""

    title: str
    introduction: str
    """What the figures are, and how they were got."""
    grids: Sequence[Grid]
    deviations: Sequence[str] = ()
    """Where the protocol of our runs differs from the paper's, one sentence each."""
    headline: str = ""
    """As the table's."""


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table as lines; a | in a cell is escaped."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in cells),
        "",
    ]
