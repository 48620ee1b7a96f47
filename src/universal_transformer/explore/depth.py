"""Error against steps at test time: one curve a way of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from universal_transformer.explore.canvas import BLUE, GREEN, MUTED, ORANGE, canvas, clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"))


def depth_curves(curves: Mapping[str, Mapping[int, Sequence[float]]]) -> Figure:
    """Mean over seeds at each number of steps, with the range of the seeds; titles stand at the ends of the curves."""
    figure, axes = canvas(
        width=9.2,
        height=3.8,
        title="More or fewer steps than in training",
        subtitle="Error on the test set in per cent, mean over seeds (band: least to most)",
    )
    ax = axes[0]
    for place, (title, points) in enumerate(curves.items()):
        colour, marker = STYLES[place % len(STYLES)]
        steps = sorted(points)
        means = [fmean(points[number]) for number in steps]
        ax.plot(steps, means, color=colour, marker=marker, linewidth=1.8, markersize=5, label=title)
        least, most = ([pick(points[number]) for number in steps] for pick in (min, max))
        ax.fill_between(steps, least, most, color=colour, alpha=0.15, linewidth=0)
        ax.set_xticks(steps)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("steps at test time (of a halting model: their cap)", color=MUTED, fontsize=10)
    ax.legend(frameon=False, labelcolor=MUTED, fontsize=10)
    clean(ax, grid="y")
    return figure
