"""Beyond the paper: error as a function of the steps at test time, trained fixed, at random depth, and halting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from universal_transformer.recipes.facts import stories
from universal_transformer.recipes.page import render
from universal_transformer.recipes.results import Figures, Result
from universal_transformer.recipes.table import Column, Curves, Grid, Page, Table
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import replaced

if TYPE_CHECKING:
    from universal_transformer.registry import Model
    from universal_transformer.tasks.task import Task

TRAINED = 6
MOST = 2 * TRAINED
"""Steps at test time go from 1 to twice those of training."""

MODELS = {
    "fixed": "Fixed depth of 6",
    "random": "Random depth, 1 to 6",
    "halting": "Dynamic halting, at most 6",
}


def depth_fixed() -> RunConfig:
    """Stories at 6 steps in training, tested at 1 to 12 (the depth study)."""
    return _recipe("depth-fixed", halting=False)


def depth_random() -> RunConfig:
    """Stories at 1 to 6 steps in training, drawn for each update, tested at 1 to 12 (the depth study)."""
    config = _recipe("depth-random", halting=False)
    return replaced(config, {"training.depth": "random"})


def depth_halting() -> RunConfig:
    """Stories with dynamic halting, a cap of 6 steps in training, tested at caps of 1 to 12 (the depth study)."""
    return _recipe("depth-halting", halting=True)


def _recipe(name: str, *, halting: bool) -> RunConfig:
    changes = {"model.halting.side": "both" if halting else "none", "model.depth.max_steps": TRAINED}
    return replaced(stories(), {"recipe": name, **changes})


def measure(model: Model, task: Task) -> Figures:
    """Return the error at each number of steps, over the whole test set and by supporting facts."""
    from universal_transformer.evaluation import InferenceOptions, evaluate

    found: Figures = {}
    for steps in range(1, MOST + 1):
        report = evaluate(model, task, options=InferenceOptions(max_steps=steps))
        for row in (*report.totals, *report.rows):
            name = ", ".join([_steps(steps), *([row.group] if row.group else [])])
            found[name] = {**row.metrics, "count": row.count, "mean_steps": row.steps[0].mean}
    return found


def _steps(number: int) -> str:
    return f"{number} step{'s' * (number > 1)}"


def curves(results: Sequence[Result]) -> Curves:
    """Return for each way of training the errors at each number of steps, those of all seeds."""
    found: Curves = {}
    for row, title in ((f"stories/{model}", title) for model, title in MODELS.items()):
        own = [result for result in results if result.row == row]
        if own:
            setting = min(own, key=lambda result: result.rank).setting
            seeds = [result for result in own if result.setting == setting]
            found[title] = {
                steps: [result.figures[_steps(steps)]["error"] for result in seeds]
                for steps in range(1, MOST + 1)
            }
    return found


def _columns(metric: str, *, group: str = "") -> dict[str, Column]:
    return {
        f"{steps}": Column(run="stories", group=f"{_steps(steps)}{group}", metrics=(metric,))
        for steps in range(1, MOST + 1)
    }


ROWS = {
    "stories/fixed": depth_fixed,
    "stories/random": depth_random,
    "stories/halting": depth_halting,
}
_PAGE = Page(
    title="Depth at test time",
    headline=_steps(TRAINED),
    introduction="""\
One model of each kind, tested at 1 to 12 steps (of a halting model: with that cap) on made-up stories with questions
of one, two and three supporting facts. The paper has no such table.""",
    grids=[
        Grid(title="Error by steps at test time", models=MODELS, columns=_columns("error")),
        *(
            Grid(title=f"Questions of {fact}", models=MODELS, columns=_columns("error", group=f", {fact}"))
            for fact in ("1 fact", "2 facts", "3 facts")
        ),
        Grid(title="Steps that positions took", models=MODELS, columns=_columns("mean_steps")),
    ],
)
DEPTH = Table(
    name="depth",
    title="error by steps at test time, trained at a fixed depth, at random depth, and halting (not in the paper)",
    naming="TASK/TRAINING",
    rows=ROWS,
    render=partial(render, page=_PAGE, rows=ROWS),
    measure=measure,
    curves=curves,
    headline=_PAGE.headline,
)
