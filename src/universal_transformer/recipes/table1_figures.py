"""Table 1 as Markdown: what was measured beside what the paper printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from statistics import fmean

from universal_transformer.evaluation.report import FAILED_ABOVE, StepCounts, show_steps
from universal_transformer.recipes import paper
from universal_transformer.recipes.page import runs, spread
from universal_transformer.recipes.results import Result
from universal_transformer.recipes.table import NOT_MEASURED, markdown
from universal_transformer.tasks.babi import TASK_NAMES

COLUMNS = {
    "10k-single": "10K single",
    "10k-joint": "10K joint",
    "1k-single": "1K single",
    "1k-joint": "1K joint",
}
MODELS = {
    "transformer": "Transformer",
    "ut": "Universal Transformer",
    "ut-halting": "UT, dynamic halting",
}
NUM_TASKS = 20

_HEAD = f"""\
# Table 1: bAbI question answering

Error on the test questions in per cent. A task fails above {FAILED_ABOVE:g} %. Ours: for each task (joint:
for each model) the run with the lowest error on validation questions, the last tenth of the training stories; test
questions choose nothing. Where several seeds of the same settings were run, mean ± standard deviation (n - 1) over
them follows. Means over tasks are given only where all {NUM_TASKS} tasks were measured. The paper's figures are the
best of ten seeds by validation error ({paper.TABLE1_SOURCE}); its single tasks and its means over seeds are from:
{paper.TABLE1_TASKS_SOURCE}. How many seeds ours are the best of is in the list of runs.
"""


@dataclass(frozen=True)
class _Figure:
    """One task: the figure of the chosen run, and those of all seeds of its settings."""

    result: Result
    error: float
    mean_steps: float
    over_seeds: Mapping[int, float]


@dataclass(frozen=True)
class _Cell:
    """A cell of the table: all that was measured of a model in a column."""

    results: Sequence[Result]

    @cached_property
    def chosen(self) -> dict[str, Result]:
        """Row -> its best run on validation."""
        best: dict[str, Result] = {}
        for result in self.results:
            if result.row not in best or result.rank < best[result.row].rank:
                best[result.row] = result
        return best

    @cached_property
    def tasks(self) -> dict[int, _Figure]:
        """Number of a task -> its figure."""
        found: dict[int, _Figure] = {}
        for row, result in self.chosen.items():
            seeds = [one for one in self.results if (one.row, one.setting) == (row, result.setting)]
            for group, scores in result.figures.items():
                over_seeds = {one.seed: one.figures[group]["error"] for one in seeds if group in one.figures}
                found[_number(group)] = _Figure(result, scores["error"], scores["mean_steps"], over_seeds)
        return dict(sorted(found.items()))

    @property
    def is_whole(self) -> bool:
        """Whether every task was measured."""
        return len(self.tasks) == NUM_TASKS

    @property
    def means(self) -> list[float]:
        """Mean error over all tasks of each seed that all tasks were measured with."""
        seeds = set.intersection(*(set(figure.over_seeds) for figure in self.tasks.values()))
        return [fmean(figure.over_seeds[seed] for figure in self.tasks.values()) for seed in sorted(seeds)]

    def summary(self) -> str:
        """Return the mean error and the number of failed tasks as the paper prints them."""
        if not self.tasks:
            return NOT_MEASURED
        if not self.is_whole:
            return f"{len(self.tasks)} of {NUM_TASKS} tasks, see below"
        errors = [figure.error for figure in self.tasks.values()]
        failed = sum(error > FAILED_ABOVE for error in errors)
        means = self.means
        return f"{fmean(errors):.2f} ({failed}){_over_seeds(means)}{_mark(self.chosen.values())}"


def render(results: Sequence[Result]) -> str:
    """Return the whole table; a cell without a run says so."""
    cells = {
        (column, model): _Cell([one for one in results if one.row.split("/")[:2] == [column, model]])
        for column in COLUMNS
        for model in MODELS
    }
    lines = [_HEAD, f"## Mean error over {NUM_TASKS} tasks (failed tasks)", "", *_overview(cells)]
    for column, title in COLUMNS.items():
        ours = {model: cells[column, model] for model in MODELS}
        if any(cell.results for cell in ours.values()):
            lines += [f"## {title}, task by task", "", *_by_task(column, ours)]
    lines += _ponder(cells)
    lines += runs(results)
    return "\n".join(lines).rstrip("\n") + "\n"


def _overview(cells: Mapping[tuple[str, str], _Cell]) -> list[str]:
    rows = []
    for model, title in MODELS.items():
        printed = [paper.TABLE1[model][column] for column in COLUMNS]
        rows.append([title, "paper", *(f"{cell.error:g} ({cell.failed})" for cell in printed)])
        if model == "ut-halting":
            spreads = [paper.TABLE1_SPREAD[column] for column in COLUMNS]
            rows.append([title, "paper, 10 seeds", *(f"{one.mean:g} ± {one.spread:g}" for one in spreads)])
        rows.append([title, "ours", *(cells[column, model].summary() for column in COLUMNS)])
    return markdown(["model", "from", *COLUMNS.values()], rows)


def _by_task(column: str, cells: Mapping[str, _Cell]) -> list[str]:
    rows = []
    for number in range(1, NUM_TASKS + 1):
        figures = [cell.tasks.get(number) for cell in cells.values()]
        steps = cells["ut-halting"].tasks.get(number)
        rows.append(
            [
                f"{number} {TASK_NAMES[number]}",
                f"{paper.TABLE1_TASKS[column][number - 1]:.1f}",
                *(_error(figure) for figure in figures),
                NOT_MEASURED if steps is None else f"{steps.mean_steps:.2f}",
            ]
        )
    head = ["task", f"{MODELS['ut-halting']}: paper", *(f"{title}: ours" for title in MODELS.values())]
    lines = markdown([*head, "mean steps a position, dynamic halting"], rows)
    chosen = [result for cell in cells.values() for result in cell.chosen.values()]
    notes = list(dict.fromkeys(f"\\* {note}" for result in chosen for note in result.notes))
    notes += [
        f"{MODELS[model]}: the runs shown differ in settings between tasks (see the runs below)"
        for model, cell in cells.items()
        if len({_shape(result) for result in cell.chosen.values()}) > 1
    ]
    return [*lines, *(f"- {note}" for note in notes), *([""] if notes else [])]


def _error(figure: _Figure | None) -> str:
    if figure is None:
        return NOT_MEASURED
    return f"{figure.error:.2f}{_over_seeds(list(figure.over_seeds.values()))}{_mark([figure.result])}"


def _over_seeds(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    return f"; {spread(values, decimals=2)} over {len(values)} seeds"


def _mark(results: Iterable[Result]) -> str:
    return "\\*" if any(result.notes for result in results) else ""


def _shape(result: Result) -> tuple[str, str]:
    """What tells settings apart beside the task: model and training without the seed."""
    training = {**result.settings["training"], "seed": 0}
    return repr(result.settings["model"]), repr(training)


def _number(group: str) -> int:
    """Return 4 of "task 4 two-arg-relations"."""
    return int(group.split()[1])


def _ponder(cells: Mapping[tuple[str, str], _Cell]) -> list[str]:
    """Ponder time by number of supporting facts, of the halting model, over the runs chosen."""
    rows = []
    for column, title in COLUMNS.items():
        cell = cells[column, "ut-halting"]
        if cell.tasks:
            tasks = ", ".join(map(str, cell.tasks)) if not cell.is_whole else f"all {NUM_TASKS}"
            rows.append([f"ours, {title}", tasks, *(_steps(cell, number) for number in paper.PONDER)])
    if not rows:
        return []
    printed = [f"{one.mean:g} ± {one.spread:g}" for one in paper.PONDER.values()]
    head = ["from", "tasks", *(f"{number} fact{'s' * (number > 1)}" for number in paper.PONDER)]
    return [
        "## Steps a position by number of supporting facts (mean ± standard deviation, dynamic halting)",
        "",
        *markdown(head, [[paper.PONDER_SOURCE, "", *printed], *rows]),
    ]


def _steps(cell: _Cell, num_supports: int) -> str:
    found = [result.steps_by_supports.get(str(num_supports), []) for result in cell.chosen.values()]
    steps = StepCounts("encoder", tuple(map(sum, zip_longest(*found, fillvalue=0))))
    return show_steps(steps) if steps.num_positions else NOT_MEASURED
