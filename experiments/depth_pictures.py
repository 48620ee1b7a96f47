"""Draw which positions take more steps, and what more steps than in training give, from recorded results.

    python experiments/depth_pictures.py

Measures nothing. Writes two pictures into docs/images:

| picture           | drawn from                                                                                       |
| ----------------- | ------------------------------------------------------------------------------------------------ |
| steps_by_need.svg | results/runs/babi_10k_joint_*.json (`ut evaluate --record`), results/studies/steps_by_need.jsonl |
| steps_at_test.svg | results/studies/sudoku_steps.jsonl, results/paper/depth.jsonl (`ut reproduce depth`)             |

`experiments/steps_by_need.py` and `experiments/sudoku_steps.py` measure the lines of the files of their names.
"""

from __future__ import annotations

import json
import re
import statistics
import textwrap
from typing import TYPE_CHECKING, Any

from study import PROJECT, STUDIES, read_lines

from paper.depth_study import curves
from paper.results import ResultsFile
from sudoku_steps import standard_error
from universal_transformer.evaluation.report import Report
from universal_transformer.explore.canvas import BLUE, GREEN, INK, MUTED, ORANGE, canvas, clean, svg
from universal_transformer.explore.figures import PAPER_STEPS
from universal_transformer.files import write_bytes
from universal_transformer.models.model_config import config_from_dict
from universal_transformer.tasks.sudoku import GIVENS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = PROJECT / "results"
IMAGES = PROJECT / "docs" / "images"
STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "v"), (MUTED, "D"))
"""Colour and marker of each line of a panel."""

BABI = {
    "babi_10k_joint_exit": "fixed depth, {}",
    "babi_10k_joint_halting": "fixed depth, then a halting unit",
    "babi_10k_joint_every_step_exit": "loss after each step, {}",
    "babi_10k_joint_every_step_halting": "loss after each step, then a halting unit",
}
"""File of results -> what its line is called; {}: the exit."""
FEWEST = 30
"""Positions below which a mean is not drawn."""
MOST_FACTS = 3
"""The paper has so many; about one position in 60 belongs to a question that needs more."""
MODELS = {
    "addition-every-step-0": "loss after each step",
    "multi30k-every-step-0": "loss after each step",
    "sudoku": "6 × 6 cells",
    "sudoku-4": "4 × 4 cells",
}
"""Model of a line of results/studies/steps_by_need.jsonl -> how docs/depth.md calls it."""
NEEDS = {
    "a carry comes from": ("Addition", "a carry comes from (below: digits)"),
    "given cells": ("Sudoku", "given cells of the board"),
    "tokens of the sentence": ("Multi30k", "tokens of the sentence (below: tokens read)"),
}
"""What needs steps -> the title of its panel, and what stands on its horizontal axis."""


def line_in(ax: Axes, x: list[float], y: list[float], *, label: str) -> str:
    """Draw the next line of a panel, and return its colour."""
    colour, marker = STYLES[len(ax.get_lines()) % len(STYLES)]
    ax.plot(x, y, color=colour, marker=marker, markersize=5, linewidth=1.6, label=label)
    return colour


def steps_axis(ax: Axes, *, room: float) -> None:
    """Begin at 1, the fewest steps, and leave `room` above for the legend, as a share of the range of the lines."""
    more = max(max(line.get_ydata()) for line in ax.get_lines()) - 1
    ax.set_ylim(1 - 0.04 * more, 1 + (1 + room) * more)
    ax.margins(x=0.1)


def finish(ax: Axes, *, title: str, x: str, y: str, where: str, right: float = 1) -> None:
    """Add names and a legend, which ends at `right`, a share of the width."""
    ax.set_title(title, fontsize=11, color=INK, loc="left")
    ax.set_xlabel(x, color=MUTED)
    ax.set_ylabel(y, color=MUTED)
    ax.legend(facecolor="white", edgecolor="none", framealpha=1, fontsize=8.5, labelcolor=INK, loc=where,
              bbox_to_anchor=(0, 0, right, 1))  # fmt: skip
    clean(ax, grid="y")


def by_facts(ax: Axes) -> None:
    """Steps of the positions of a question, by the supporting facts that it needs."""
    for name, label in BABI.items():
        record = json.loads((RESULTS / "runs" / f"{name}.json").read_text(encoding="utf-8"))
        chosen = re.search(r"--exit (\S+)", record["evaluate"])
        supports = Report.from_dict(record["report"]).steps_by_supports
        means = {found.num_supports: found.steps.mean for found in supports if found.num_supports <= MOST_FACTS}
        line_in(ax, [*means], [*means.values()], label=label.format(chosen[1] if chosen else ""))
    paper = {number: mean for number, (mean, _) in PAPER_STEPS.items()}
    line_in(ax, [*paper], [*paper.values()], label="paper (ACT)")
    ax.set_xticks(range(1, MOST_FACTS + 1))
    steps_axis(ax, room=0.65)
    finish(ax, title="bAbI 10K joint", x="supporting facts of the question", y="mean steps", where="upper left")


def by_need(ax: Axes, need: str) -> None:
    """A line for each recorded model and exit, two for an encoder and a decoder."""
    title, x = NEEDS[need]
    found = [line for line in read_lines(STUDIES / "steps_by_need.jsonl") if line["need"] == need]
    for line in sorted(found, key=lambda line: line["task"]):
        rows = [row for row in line["rows"] if row["count"] >= FEWEST]
        numbers = all(row["need"].isdigit() for row in rows)
        places = [int(row["need"]) if numbers else place for place, row in enumerate(rows)]
        name = f"{MODELS.get(line['model'], line['model'])}, {line['exit']}"
        sides = {"steps": "encoder: ", "decoder_steps": "decoder: "} if "decoder_steps" in rows[0] else {"steps": ""}
        for field, side in sides.items():
            line_in(ax, places, [row[field] for row in rows], label=f"{side}{name}")
        if not numbers:
            ax.set_xticks(places, [f"{textwrap.fill(row['need'], 10)}\n{row['count']:,}" for row in rows])
    steps_axis(ax, room=0.35)
    finish(ax, title=title, x=x, y="mean steps", where="upper right")


def steps_by_need() -> None:
    figure, axes = canvas(
        width=11,
        height=8,
        rows=2,
        columns=2,
        title="Which positions take more steps?",
        subtitle="Mean steps by what needs them; one seed of training for each line",
    )
    by_facts(axes[0])
    for ax, need in zip(axes[1:], NEEDS, strict=True):
        by_need(ax, need)
    write_bytes(IMAGES / "steps_by_need.svg", svg(figure))


def solved(ax: Axes, side: int) -> None:
    """Share of boards solved by steps at test time: the mean over seeds with its deviation, or one share and its error.

    The standard errors are those of experiments/sudoku_steps.py.
    """
    models: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for line in read_lines(STUDIES / "sudoku_steps.jsonl"):
        if line["side"] == side:
            drawn = "1 to " if line["depth"] == "random" else ""
            name = f"trained with {drawn}{line['trained_steps']} steps"
            models.setdefault(name, {}).setdefault(line["steps"], []).append(line)
    several = False
    for (label, own), (colour, marker) in zip(models.items(), STYLES, strict=False):
        shares = [[100 * line["solved"] / line["count"] for line in lines] for lines in own.values()]
        means, several = list(map(statistics.mean, shares)), len(shares[0]) > 1
        ax.axvline(next(iter(own.values()))[0]["trained_steps"], color=colour, linewidth=1.2, linestyle="--", zorder=0)
        if several:
            spreads = list(map(statistics.stdev, shares))
            low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
            ax.fill_between([*own], low, high, color=colour, alpha=0.13, linewidth=0)
        else:
            spreads = [standard_error(lines[0]) for lines in own.values()]
        ax.errorbar([*own], means, yerr=None if several else spreads, color=colour, marker=marker, markersize=5,
                    linewidth=1.6, capsize=3, label=label)  # fmt: skip
    lines = [line for own in models.values() for found in own.values() for line in found]
    ax.set_xticks(sorted({line["steps"] for line in lines}))
    seeds = len({line["seed"] for line in lines})
    title = f"Sudoku {side} × {side}, {lines[0]['count']:,} boards, {seeds} seed{'s' * several}"
    spread = "standard deviation" if several else "standard error"
    finish(ax, title=title, x="steps at test time", y=f"boards solved ± {spread}, %", where="lower right")


def errors_of_stories(ax: Axes) -> None:
    """Mean error and standard deviation over seeds by steps at test time."""
    results = ResultsFile(RESULTS / "paper" / "depth.jsonl", table="depth", say=print).read()
    seeds = set()
    for title, errors in curves(results).items():
        means = [statistics.mean(values) for values in errors.values()]
        spreads = [statistics.stdev(values) for values in errors.values()]
        seeds.add(len(next(iter(errors.values()))))
        colour = line_in(ax, [*errors], means, label=title)
        low, high = ([mean + sign * wide for mean, wide in zip(means, spreads, strict=True)] for sign in (-1, 1))
        ax.fill_between([*errors], low, high, color=colour, alpha=0.13, linewidth=0)
    depths = {config_from_dict(result.settings["model"]).max_steps for result in results}
    for steps in sorted(depths):
        label = "steps of training, or cap" if steps == min(depths) else ""
        ax.axvline(steps, color=MUTED, linewidth=1.2, linestyle="--", label=label, zorder=0)
    ax.set_xticks(range(1, 1 + max(depths)))
    ax.set_yscale("log")
    ax.set_yticks([2, 5, 10, 20, 40], ["2", "5", "10", "20", "40"])
    ax.minorticks_off()
    title = f"Stories, {' or '.join(map(str, sorted(seeds)))} seeds"
    finish(ax, title=title, x="steps at test time (halting: cap)", y="error, % (logarithmic)", where="upper right",
           right=0.95)  # fmt: skip


def steps_at_test() -> None:
    figure, axes = canvas(
        width=12,
        height=8,
        rows=2,
        columns=2,
        title="Do more steps than in training help?",
        subtitle="Mean over seeds where there are several, with a band of one standard deviation",
    )
    for ax, side in zip(axes, GIVENS, strict=False):
        solved(ax, side)
    errors_of_stories(axes[-1])
    write_bytes(IMAGES / "steps_at_test.svg", svg(figure))


if __name__ == "__main__":
    for draw in (steps_by_need, steps_at_test):
        draw()
