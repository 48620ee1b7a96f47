"""Not in the paper: error as a function of the steps at test time, trained fixed, at random depth, and halting."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from paper.definition import Column, Grid, ResultTable
from paper.learning_curves import STYLES
from paper.results import Figures, Result
from universal_transformer.explore.canvas import canvas, clean, legend
from universal_transformer.recipes import RECIPES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from universal_transformer.models.model import Model
    from universal_transformer.tasks.task import Task

Curves = dict[str, dict[int, list[float]]]
"""Title of a curve -> steps -> the error of each seed."""

TRAINED_STEPS = 6
MAX_STEPS = 2 * TRAINED_STEPS
"""Steps at test time go from 1 to twice those of training."""

MODELS = {
    "fixed": "Fixed depth of 6",
    "random": "Random depth, 1 to 6",
    "halting": "Dynamic halting, at most 6",
    "halting-2x": "Dynamic halting, at most 12",
}


def measure(model: Model, task: Task) -> Figures:
    """Return the error at each number of steps, over the whole test set and by supporting facts."""
    from universal_transformer.decoding.options import DecodingOptions
    from universal_transformer.evaluation.measure import evaluate
    from universal_transformer.evaluation.scores import mean_over

    found: Figures = {}
    for steps in range(1, MAX_STEPS + 1):
        report = evaluate(model, task, options=DecodingOptions(max_steps=steps))
        for row in (*report.totals, *report.rows):
            name = ", ".join([_steps(steps), *([row.group] if row.group else [])])
            found[name] = {**row.metrics, "count": row.count, "mean_steps": mean_over(row.steps)}
    return found


def _steps(number: int) -> str:
    return f"{number} step{'s' * (number > 1)}"


def curves(results: Sequence[Result]) -> Curves:
    """Return for each way of training the errors of all seeds at each number of steps."""
    found: Curves = {}
    for model, title in MODELS.items():
        own = [result for result in results if result.row == f"stories/{model}"]
        if own:
            setting = min(own, key=lambda result: result.rank).setting
            seeds = [result for result in own if result.setting == setting]
            found[title] = {
                steps: [result.figures[_steps(steps)]["error"] for result in seeds] for steps in range(1, MAX_STEPS + 1)
            }
    return found


def depth_figure(results: Sequence[Result]) -> Figure | None:
    """Error against steps at test time, one curve for each way of training: mean over seeds, with their range."""
    if not (found := curves(results)):
        return None
    figure, (ax,) = canvas(
        width=9.2,
        height=3.8,
        title="More or fewer steps than in training",
        subtitle="Error on the test set in per cent, mean over seeds (band: smallest to largest)",
    )
    for place, (title, points) in enumerate(found.items()):
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


def _columns(metric: str, *, group: str = "") -> dict[str, Column]:
    return {
        f"{steps}": Column(run="stories", group=f"{_steps(steps)}{group}", metrics=(metric,))
        for steps in range(1, MAX_STEPS + 1)
    }


DEPTH = ResultTable(
    name="depth",
    title="error by steps at test time, trained at a fixed depth, at random depth, and halting (not in the paper)",
    naming="TASK/TRAINING",
    rows={
        "stories/fixed": RECIPES["depth-fixed"],
        "stories/random": RECIPES["depth-random"],
        "stories/halting": RECIPES["depth-halting"],
        "stories/halting-2x": RECIPES["depth-halting-2x"],
    },
    heading="Depth at test time",
    introduction="""\
One model of each kind, tested at 1 to 12 steps (a halting model: with that cap) on generated stories with questions of
one, two and three supporting facts. The paper has no such table.""",
    grids=[
        Grid(title="Error by steps at test time", models=MODELS, columns=_columns("error")),
        *(
            Grid(title=f"Questions of {fact}", models=MODELS, columns=_columns("error", group=f", {fact}"))
            for fact in ("1 fact", "2 facts", "3 facts")
        ),
        Grid(title="Mean steps of positions", models=MODELS, columns=_columns("mean_steps")),
    ],
    measure=measure,
    figure=depth_figure,
    headline=_steps(TRAINED_STEPS),
)
