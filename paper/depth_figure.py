"""Figure of the depth study."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from paper.definition import Curves
from universal_transformer.explore.canvas import BLUE, GREEN, ORANGE, canvas, clean, legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "D"))
"""Colour and marker of each curve."""


def depth_curves(curves: Curves) -> Figure:
    """Error against steps at test time, one curve for each way of training: mean over seeds, with their range."""
    figure, (ax,) = canvas(
        width=9.2,
        height=3.8,
        title="More or fewer steps than in training",
        subtitle="Error on the test set in per cent, mean over seeds (band: smallest to largest)",
    )
    for place, (title, points) in enumerate(curves.items()):
        colour, marker = STYLES[place % len(STYLES)]
        steps = sorted(points)
        means = [fmean(points[number]) for number in steps]
        ax.plot(steps, means, color=colour, marker=marker, linewidth=1.8, markersize=5, label=title)
        least, most = ([pick(points[number]) for number in steps] for pick in (min, max))
        ax.fill_between(steps, least, most, color=colour, alpha=0.15, linewidth=0)
        ax.set_xticks(steps)
    ax.set_ylim(bottom=0)
    legend(ax)
    clean(ax, grid="y", x="steps at test time (halting model: cap)", y="error %")
    return figure
