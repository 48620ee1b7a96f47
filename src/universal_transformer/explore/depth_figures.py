"""What fewer steps cost: figures of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from universal_transformer.evaluation.calibration import Calibration, Point, percent
from universal_transformer.explore.canvas import BLUE, GREEN, INK, ORANGE, canvas, clean, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")
"""Of the rules, in their order."""


def loss_by_steps(found: Calibration) -> Figure:
    """Loss and time of each setting against its mean steps.

    Settings that the test accepts are filled. The axis of the loss is linear up to the tolerance, logarithmic above.
    """
    goal = found.goal
    figure, (loss, time) = canvas(
        width=9.0,
        height=3.6,
        columns=2,
        title=f"Fewer steps: {found.task}",
        subtitle=f"{found.count:,} examples of {found.split}; tolerance {percent(goal.tolerance)}, confidence "
        f"{percent(goal.confidence)}; filled: accepted",
    )
    for colour, points in zip(COLOURS, found.rules.values(), strict=False):
        _curve(loss, points, [100 * point.loss for point in points], colour)
        _curve(time, points, [1000 * point.cost.seconds for point in points], colour)
    loss.axhline(100 * goal.tolerance, color=INK, linewidth=0.8, linestyle="--")
    loss.set_yscale("symlog", linthresh=100 * goal.tolerance)
    highest = 100 * max(goal.tolerance, *(point.loss for point in found.points))
    loss.set_ylim(0, 1.3 * highest)
    loss.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    time.scatter([found.trained.mean_steps], [1000 * found.trained.seconds], color=INK, marker="D", s=30, zorder=3)
    time.annotate("as trained", (found.trained.mean_steps, 1000 * found.trained.seconds), (-6, 6), ha="right",
                  textcoords="offset points", color=INK, fontsize=9)  # fmt: skip
    time.set_ylim(bottom=0)
    if (point := found.point) is not None:
        for ax, y in ((loss, 100 * point.loss), (time, 1000 * point.cost.seconds)):
            ax.scatter([point.cost.mean_steps], [y], s=150, facecolors="none", edgecolors=INK, zorder=4)
    for ax, name in ((loss, "loss, %"), (time, "milliseconds for an example")):
        clean(ax, grid="y", x="mean steps of a position", y=name)
    legend(loss)
    return figure


def _curve(ax: Axes, points: Sequence[Point], values: list[float], colour: str) -> None:
    steps = [point.cost.mean_steps for point in points]
    ax.plot(steps, values, color=colour, linewidth=1, label=points[0].setting.rule)
    filled = [colour if point.accepted else "white" for point in points]
    ax.scatter(steps, values, s=22, edgecolors=colour, facecolors=filled, zorder=2)
