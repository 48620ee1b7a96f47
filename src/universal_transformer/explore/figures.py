"""Figures of a report, of a run and of a calibration; each function returns a Figure.

Nothing is shown by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from universal_transformer.evaluation.calibration import Calibration, Point, percent
from universal_transformer.evaluation.metrics import scores
from universal_transformer.evaluation.report import Report, ScoreRow, StepCounts, show_steps
from universal_transformer.explore.canvas import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    bare,
    canvas,
    clean,
    duration,
    label,
    legend,
    shades,
)
from universal_transformer.files import counted
from universal_transformer.training.validation import TEACHER_FORCED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_GROUPS = 40
MOST_ROWS = 100
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")
"""Of the rules of a calibration, or of numbers of supporting facts, in their order."""
MARKERS = "os^vDP"
NOISE = {"dropout": "dropout", "label_smoothing": "smoothed labels"}
"""What a loss of training has and one of validation has not, by fields of the first line of the metrics."""
_Line = tuple[str, list[tuple[int, float]], str, float, str]
"""Name, points, colour, width and marker of a curve."""

PAPER_STEPS: Mapping[int, tuple[float, float]] = MappingProxyType({1: (2.3, 0.8), 2: (3.1, 1.1), 3: (3.8, 2.2)})
"""Mean ponder time ± standard deviation by number of supporting facts on bAbI (paper, section 3.1)."""


def ponder_histogram(report: Report) -> Figure:
    """Share of positions by number of steps: over the whole test set, and by group if there are groups."""
    sides = [steps for side in ("encoder", "decoder") if (steps := report.steps(side)) is not None]
    grouped = report.has_groups and len(report.rows) <= MOST_GROUPS
    height = max(2.9, 0.34 * len(report.rows) + 0.6) if grouped else 2.9
    figure, axes = canvas(
        width=9.2,
        height=height,
        title="Steps of positions",
        subtitle=" · ".join(f"{steps.side} {show_steps(steps)}" for steps in sides) + f" (mean ± sd), {report.task}",
        columns=2 if grouped else 1,
        ratios=(1.0, 1.15) if grouped else (1.0,),
    )
    _step_bars(axes[0], sides, cap=report.max_steps)
    if grouped:
        _step_grid(axes[1], report)
    return figure


def ponder_by_supports(report: Report, *, paper: bool = False) -> Figure:
    """Mean N ± standard deviation over positions by number of supporting facts (paper, section 3.1)."""
    figure, axes = canvas(
        width=6.4,
        height=3.3,
        title="Steps by number of supporting facts",
        subtitle=f"mean steps ± standard deviation over positions, {report.task}",
    )
    ax = axes[0]
    ours = {each.num_supports: (each.steps.mean, each.steps.spread) for each in report.steps_by_supports}
    numbers = np.array([*ours], dtype=float)
    series = [("this run", BLUE, "o", ours)]
    if paper:
        theirs = {number: value for number, value in PAPER_STEPS.items() if number in ours}
        series.append(("paper (bAbI)", MUTED, "D", theirs))
    for index, (name, colour, marker, points) in enumerate(series):
        means, spreads = [mean for mean, _ in points.values()], [spread for _, spread in points.values()]
        place = np.array([*points], dtype=float) + 0.14 * (index - (len(series) - 1) / 2)
        ax.errorbar(
            place, means, yerr=spreads, color=colour, marker=marker, markersize=8, capsize=5, linewidth=1.8,
            elinewidth=1.4, markerfacecolor=colour if index == 0 else "white", label=name,
        )  # fmt: skip
        left = paper and index == 0
        for x, mean in zip(place, means, strict=True):
            ax.annotate(
                f"{mean:.1f}" if index else f"{mean:.2f}", (x, mean), xytext=(-9 if left else 9, 7),
                textcoords="offset points", ha="right" if left else "left", color=colour, fontsize=9.5,
            )  # fmt: skip
    ax.set_xticks(numbers)
    ax.set_xlim(numbers.min() - 0.5, numbers.max() + 0.6)
    ax.set_ylim(bottom=0)
    if paper:
        legend(ax, loc="lower right")
    clean(ax, grid="y", x="supporting facts of the question", y="steps (N)")
    return figure


def attention_by_step(report: Report) -> Figure:
    """Entropy of the attention of questions and its mass on the supporting facts by step (paper, section 3.1)."""
    figure, axes = canvas(
        width=9.0,
        height=3.3,
        title="Attention of questions by number of supporting facts",
        subtitle=f"mean over heads, blocks and the questions that make the step; 1 is uniform, {report.task}",
        columns=2,
    )
    supports = sorted({at.num_supports for at in report.attention})
    for ax, name, title in zip(axes, ("entropy", "mass"), ("entropy", "weight of the supporting facts"), strict=True):
        for index, number in enumerate(supports):
            points = [(at.step, getattr(at, name)) for at in report.attention if at.num_supports == number]
            ax.plot(
                *zip(*points, strict=True), color=COLOURS[index % len(COLOURS)], marker=MARKERS[index % len(MARKERS)],
                linewidth=1.8, label=f"{number}",
            )  # fmt: skip
        ax.axhline(1, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        ax.set_xticks(sorted({at.step for at in report.attention}))
        ax.set_ylim(bottom=0)
        clean(ax, grid="y", x="step", y=title)
    legend(axes[1], title="supporting facts", ncols=1 + len(supports) // 4)
    return figure


def error_by_group(report: Report) -> Figure:
    """The report's first score by group, of at most `MOST_ROWS`; failed tasks (error above 5 %) are marked."""
    rows, score, failed = report.rows[:MOST_ROWS], scores()[report.headline], report.failed or ()
    subtitle = f"{report.task}, {report.split}"
    if report.failed is not None:
        subtitle += f": {len(failed)} of {len(report.rows)} failed ({report.failed_means})"
    if len(rows) < len(report.rows):
        subtitle += f", {len(rows)} of {len(report.rows)} groups shown"
    name = score.title.removesuffix(" %")
    figure, (ax,) = canvas(
        width=8.2,
        height=max(1.6, 0.3 * len(rows) + 0.8),
        title=f"{name[0].upper()}{name[1:]} by group",
        subtitle=subtitle,
    )
    for place, row in enumerate(rows):
        bad, value = row in failed, row.metrics[score.name]
        ax.barh(place, value, height=0.64, color=ORANGE if bad else BLUE)
        ax.annotate(score.text(value) + (" failed" if bad else ""), (value, place), xytext=(4, 0),
                    textcoords="offset points", va="center", fontsize=9, color=ORANGE if bad else INK)  # fmt: skip
    if report.failed_above is not None and report.failed is not None:
        ax.axvline(report.failed_above, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    ax.set_yticks(range(len(rows)), labels=[label(_row_name(report, row)) for row in rows], parse_math=False)
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.set_xlim(0, 1.16 * max(1.0, *(row.metrics[score.name] for row in rows)))
    clean(ax, grid="x", x=score.title)
    ax.tick_params(axis="y", labelcolor=INK, labelsize=9.5)
    return figure


def training_curve(metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss, validation, baseline and mean steps over the updates of a run (lines of its metrics.jsonl)."""
    loss = _curve(metrics, "update", "cross_entropy") or _curve(metrics, "update", "loss")
    seconds = max((float(line.get("seconds", 0)) for line in metrics), default=0.0)
    updates = max((int(line.get("update", 0)) for line in metrics), default=0)
    start = next((line for line in metrics if line.get("event") == "start"), {})
    noise = [text for name, text in NOISE.items() if start.get(name)]
    trained = f"training, with {' and '.join(noise)}" if noise else "training"
    losses = [(trained, loss, BLUE, 1.8, ""), *_validations(metrics, "cross_entropy")]
    panels = [("loss (nats a target)", losses, _last(metrics, "baseline_cross_entropy"))]
    if _curve(metrics, "validation", "error"):
        errors, writes = _validations(metrics, "error", unit=100.0), start.get("writes") == "tokens"
        name = TEACHER_FORCED.format(" %") if writes else "validation error %"
        panels.append((name, errors, _last(metrics, "baseline_error", unit=100.0)))
    if measured := [line for line in metrics if line.get("metric_name") in scores()]:
        name = scores()[measured[-1]["metric_name"]].title
        shown = _validations(measured, "metric")
        panels.append((f"validation {name}", shown, _last(metrics, "baseline_metric")))
    sides = (("encoder", GREEN), ("decoder", BLUE))
    steps = [(side, _curve(metrics, "update", f"{side}_steps"), colour, 1.8, "") for side, colour in sides]
    if any(len({value for _, value in points}) > 1 for _, points, *_ in steps):
        panels.append(("mean steps (N)", steps, None))
    figure, axes = canvas(
        width=8.2,
        height=1.75 * len(panels) + 0.5,
        title="Training",
        subtitle=f"{counted(updates, 'update')} in {duration(seconds)}",
        rows=len(panels),
    )
    for upper, lower in pairwise(axes):
        upper.sharex(lower)  # before the curves: the shared range is then that of all panels
        upper.tick_params(labelbottom=False)
    for ax, (name, curves, baseline) in zip(axes, panels, strict=True):
        for curve, points, colour, width, marker in curves:
            if points:
                x, y = zip(*points, strict=True)
                ax.plot(x, y, color=colour, linewidth=width, marker=marker, markersize=3.5, label=curve)
        if baseline is not None:
            ax.axhline(baseline, color=MUTED, linewidth=1.2, linestyle="--", label="baseline")
        if curves is not steps:
            ax.set_ylim(bottom=0)
        if len(ax.lines) > 1:
            # above the panel: a baseline goes through its whole width
            legend(ax, loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=len(ax.lines), borderaxespad=0.0)
        clean(ax, grid="y", x="updates" if ax is axes[-1] else "", y=name)
    figure.align_ylabels(axes)
    return figure


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
        _points(loss, points, [100 * point.loss for point in points], colour)
        _points(time, points, [1000 * point.cost.seconds for point in points], colour)
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


def _validations(metrics: Sequence[Mapping[str, Any]], name: str, *, unit: float = 1.0) -> list[_Line]:
    last, average = (_curve(metrics, "validation", name, weights=weights, unit=unit) for weights in ("last", "average"))
    return [("validation", last, ORANGE, 1.6, "o"), ("average of weights", average, GREEN, 0.0, "D")]


def _last(metrics: Sequence[Mapping[str, Any]], name: str, *, unit: float = 1.0) -> float | None:
    """Return the last value of a figure times `unit`; None if no line has it."""
    values = [unit * float(line[name]) for line in metrics if isinstance(line.get(name), int | float)]
    return values[-1] if values else None


def _step_bars(ax: Axes, sides: Sequence[StepCounts], *, cap: int) -> None:
    thickness = 0.8 / len(sides)
    for index, steps in enumerate(sides):
        shares = 100 * np.array(steps.counts) / max(1, steps.num_positions)
        places = np.arange(1, cap + 1) + (index - (len(sides) - 1) / 2) * thickness
        bars = ax.bar(places, shares, width=thickness * 0.94, color=(BLUE, ORANGE)[index], label=steps.side)
        if cap * len(sides) <= 12:
            labels = [f"{share:.0f}" if share >= 0.5 else "" for share in shares]
            ax.bar_label(bars, labels=labels, fontsize=9, color=MUTED, padding=2)
    ax.set_xticks(_step_ticks(cap))
    ax.margins(y=0.12)
    if len(sides) > 1:
        legend(ax)
    clean(ax, grid="y", x="steps (N)", y="% of positions")


def _step_ticks(cap: int) -> range:
    return range(1, cap + 1) if cap <= 16 else range(0, cap + 1, 5)


def _step_grid(ax: Axes, report: Report) -> None:
    """Draw one line for each group: shades are shares of positions, the dot is the mean."""
    firsts = [row.steps[0] for row in report.rows]
    shares = np.array([np.array(steps.counts) / max(1, steps.num_positions) for steps in firsts])
    ax.imshow(
        shares, cmap=shades(darkest=3), aspect="auto", vmin=0, vmax=max(shares.max(), 1e-6),
        extent=(0.5, report.max_steps + 0.5, len(firsts) - 0.5, -0.5),
    )  # fmt: skip
    for edge in range(len(firsts) - 1):
        ax.axhline(edge + 0.5, color="white", linewidth=2)
    for place, steps in enumerate(firsts):
        ax.plot(steps.mean, place, "o", color=ORANGE, markersize=7, markeredgecolor="white", markeredgewidth=1.2)
        ax.annotate(
            f"{steps.mean:.2f}", (steps.mean, place), xytext=(8, 0), textcoords="offset points", va="center",
            fontsize=9, color=INK,
        )  # fmt: skip
    names = [label(_row_name(report, row), most=32) for row in report.rows]
    ax.set_yticks(range(len(names)), labels=names, parse_math=False)
    ax.set_xticks(_step_ticks(report.max_steps))
    ax.set_xlabel(f"steps (N) of the {firsts[0].side}; ● mean", color=MUTED, fontsize=10)
    bare(ax)
    ax.tick_params(axis="y", labelcolor=INK, labelsize=9.5)


def _row_name(report: Report, row: ScoreRow) -> str:
    return f"{row.set}: {row.group}" if len(report.totals) > 1 and row.group else row.name


def _curve(
    metrics: Sequence[Mapping[str, Any]], event: str, name: str, *, weights: str = "last", unit: float = 1.0
) -> list[tuple[int, float]]:
    """Return (update, value times `unit`) of the lines of one event, of the weights after this update.

    `weights` "average" chooses the validations of the average of the last few weights.
    """
    return [
        (int(line["update"]), unit * float(line[name]))
        for line in metrics
        if line.get("event") == event
        and isinstance(line.get(name), int | float)
        and line.get("weights", "last") == weights
    ]


def _points(ax: Axes, points: Sequence[Point], values: list[float], colour: str) -> None:
    steps = [point.cost.mean_steps for point in points]
    ax.plot(steps, values, color=colour, linewidth=1, label=points[0].setting.rule)
    filled = [colour if point.accepted else "white" for point in points]
    ax.scatter(steps, values, s=22, edgecolors=colour, facecolors=filled, zorder=2)
