"""Learning curves of the best run of each row but those of single tasks: cross-entropy on validation by updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paper.rendering import best_runs
from universal_transformer.explore.canvas import BLUE, GREEN, ORANGE, canvas, clean, legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from paper.definition import ResultTable
    from paper.results import Result

STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "D"))
"""Colour and marker of each curve; later ones begin again, dashed."""


def learning_curves(table: ResultTable, results: Sequence[Result]) -> Figure | None:
    """Draw a panel for each first part of the names of rows, with a curve for each row; None without curves."""
    runs = best_runs([one for one in results if one.curve and one.row.count("/") == 1])
    panels = list(dict.fromkeys(one.row.split("/")[0] for one in runs))
    if not panels:
        return None
    figure, axes = canvas(
        width=max(6.0, 4.6 * len(panels)),
        height=3.4,
        title=f"{table.heading.partition(':')[0]}: learning curves",
        subtitle="Cross-entropy on validation in nats, of the running mean of the weights where a run has one",
        columns=len(panels),
    )
    models = list(dict.fromkeys(one.row.partition("/")[2] for one in runs))
    for ax, panel in zip(axes, panels, strict=True):
        for run in runs:
            column, _, model = run.row.partition("/")
            if column != panel:
                continue
            turn, place = divmod(models.index(model), len(STYLES))
            colour, marker = STYLES[place]
            ax.plot(
                [point[0] for point in run.curve],
                [point[1] for point in run.curve],
                color=colour,
                marker=marker,
                linestyle="--" if turn else "-",
                linewidth=1.6,
                markersize=3,
                label=model,
            )
        ax.set_yscale("log")
        ax.set_title(panel, fontsize=10, loc="left")
        legend(ax)
        clean(ax, grid="y", x="updates", y="nats")
    return figure
