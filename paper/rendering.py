"""A table as Markdown: our figures next to the paper's, the notes on them, and the runs that they are from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, zip_longest
from statistics import fmean, stdev, variance

from paper.below_print import BELOW_PRINT
from paper.definition import Column, Grid, ResultTable
from paper.printed import Cell
from paper.results import Result
from universal_transformer.evaluation.scores import (
    ACCURACY,
    ERROR,
    FAILED_ABOVE,
    SEQUENCE_ACCURACY,
    Score,
    StepCounts,
    show_steps,
)
from universal_transformer.training.provenance import show_commit

METRICS: Mapping[str, Score] = {
    "error": ERROR,
    "character_accuracy": Score("character_accuracy", "character accuracy", 3, "high"),
    "sequence_accuracy": SEQUENCE_ACCURACY,
    "bleu": Score("bleu", "BLEU", 2, "high"),
    "chrf": Score("chrf", "chrF", 2, "high"),
    "accuracy": ACCURACY,
    "known_perplexity": Score("known_perplexity", "perplexity, known words", 2, "low"),
    "perplexity": Score("perplexity", "perplexity", 1, "low"),  # one decimal less than a report
    "cross_entropy": Score("cross_entropy", "cross-entropy (nats)", 3, "low"),
    "mean_steps": Score("mean_steps", "mean steps", 2, "low"),
    "failed": Score("failed", "failed tasks", 0, "low"),
}
"""Every score that a table can show."""
LARGEST: Mapping[str, float] = {"character_accuracy": 1, "sequence_accuracy": 1, "accuracy": 1, "error": 100}
"""Scores that are means over the test examples of numbers from 0 to this one."""

COMPARED = ("ut-halting", "ut", "transformer", "transformer-small", "lstm")
"""Models whose order the paper is about."""
NOT_MEASURED = "not measured"
Seeds = list[list[Mapping[str, float]]]
"""The scores of each group, of each seed."""
_CHOICE = """\
Of all runs of a row, ours is the best one on validation; test examples are not used for this choice. Where several
seeds with its settings were run, mean ± standard deviation (n - 1) over them follows.\
"""

_EVERYWHERE = """\
Rows but those of post-norm and as printed have the norms before the sub-layers. Sizes, rates and lengths of training \
are others: `ut train RECIPE --help` shows them.\
"""
_CURVES = """\
Of the running mean of the weights where a run has one; those of runs before commit 82073ad2 are of the weights \
themselves. Older runs kept no curve.\
"""
_ORDER = """\
Each model has its best run on validation. The two of a pair may have different data and numbers of updates, which the \
list of runs has: an order as printed is no comparison of equal trainings. "No difference" is one below two standard \
errors over the seeds (of one seed: of the test examples; of one BLEU, perplexity or number of failed tasks no error \
is known), or between two models that are no better than chance. Where the scores of a cell differ in this, each has \
its own; "-" is one that is printed as equal. Variants of the Universal Transformer are not compared.\
"""


def render(table: ResultTable, results: Sequence[Result]) -> str:
    """Return the whole page; a cell without a run says so."""
    notes = _Notes(results)
    lines = [f"# {table.heading}", "", table.introduction.strip(), "", _CHOICE, ""]
    for grid in table.grids:
        lines += _grid(grid, results, rows=[*table.rows, *table.records], notes=notes)
        lines += _order(grid, results)
    lines += notes.lines()
    if any(one.curve for one in results) or table.figure is not None:
        lines += ["## Curves", "", f"![Curves of the runs]({table.name}.svg)", ""]
        lines += [_CURVES, ""] if table.figure is None else []
    elif results:
        lines += ["## Curves", "", "No run of this table kept a curve: they are older than the keeping of curves.", ""]
    tried = BELOW_PRINT.get(table.name, {})
    if below := {name: tried[name] for row in below_print(table, results) for name in tried if _belongs(row, key=name)}:
        lines += ["## Below print, and what was tried", "", *(f"- {row}: {text}" for row, text in below.items()), ""]
    if any(grid.printed for grid in table.grids):
        lines += ["## Where the protocol differs from the paper's", ""]
        lines += [*(f"- {one}" for one in (_EVERYWHERE, *table.deviations)), ""]
    lines += _runs(results, headline=table.headline)
    if unknown := [one.row for one in results if one.row not in {*table.rows, *table.records}]:
        names = ", ".join(dict.fromkeys(unknown))
        lines += ["", f"Rows that this version does not have, shown only in the list of runs: {names}."]
    return "\n".join(lines).rstrip("\n") + "\n"


class _Notes:
    """Notes, numbered in the order in which figures need them; a note of all runs (of a column) appears once."""

    def __init__(self, results: Sequence[Result]) -> None:
        of_columns: dict[str, list[Result]] = {}
        for one in results:
            of_columns.setdefault(_column(one), []).append(one)
        self._shared = _common(results)
        self._of_columns = {
            name: [note for note in _common(found) if note not in self._shared]
            for name, found in of_columns.items()
            if len(found) > 1
        }
        self._numbers: dict[str, int] = {}

    def mark(self, results: Iterable[Result]) -> str:
        own: dict[str, None] = {}
        for result in results:
            common = [*self._shared, *self._of_columns.get(_column(result), [])]
            own |= dict.fromkeys(note for note in result.notes if note not in common)
        return "".join(f" [{self._numbers.setdefault(note, len(self._numbers) + 1)}]" for note in own)

    def lines(self) -> list[str]:
        found = [f"- All of ours: {note}" for note in self._shared]
        found += [f"- All of {name}: {note}" for name, notes in self._of_columns.items() for note in notes]
        found += [f"- [{number}] {note}" for note, number in self._numbers.items()]
        return [*found, ""] if found else []


def _column(result: Result) -> str:
    return result.row.rpartition("/")[0]


def _common(results: Sequence[Result]) -> list[str]:
    """Return the notes that all results have."""
    return [note for note in results[0].notes if all(note in one.notes for one in results)] if results else []


def _grid(grid: Grid, results: Sequence[Result], *, rows: Iterable[str], notes: _Notes) -> list[str]:
    lines, is_measured = [], False
    for model, title in grid.models.items():
        if model in grid.printed:
            lines.append([title, grid.source, *(_printed(cell) for cell in grid.printed[model])])
        keys = [f"{column.run}/{model}".lstrip("/") for column in grid.columns.values()]
        known = [any(_belongs(row, key=key) for row in rows) for key in keys]
        if any(known):
            cells = [
                _cell(column, [one for one in results if _belongs(one.row, key=key)], notes=notes) if is_known else "-"
                for column, key, is_known in zip(grid.columns.values(), keys, known, strict=True)
            ]
            is_measured |= not {"-", NOT_MEASURED}.issuperset(cells)
            lines.append([title, "ours", *cells])
    units = [" / ".join(METRICS[metric].title for metric in column.metrics) for column in grid.columns.values()]
    unit = units[0] if len(set(units)) == 1 else ""
    names = [*grid.columns]
    if len(set(units)) > 1:
        names = [f"{name}: {one}" for name, one in zip(names, units, strict=True)]
    head = ["model", "from", *names]
    if grid.transposed and not is_measured:
        return []  # lines of the paper's figures only
    if grid.transposed:
        titles, sources, *cells_by_column = zip(head, *lines, strict=True)
        head = ["", *(f"{title}: {source}" for title, source in zip(titles[1:], sources[1:], strict=True))]
        lines = [list(cells) for cells in cells_by_column]
    # capitalize() would write Bleu
    unit_lines = [f"{unit[0].upper()}{unit[1:]}.", ""] if unit else []
    return [f"## {grid.title}", "", *unit_lines, *_markdown(head, lines)]


def _order(grid: Grid, results: Sequence[Result]) -> list[str]:
    """Whether each pair of models that the paper compares has the order that it prints, by each score of a cell."""
    models = [model for model in grid.models if model in grid.printed and model in COMPARED]
    rows = []
    for better, worse in combinations(sorted(models, key=COMPARED.index), 2):
        cells = []
        for place, column in enumerate(grid.columns.values()):
            printed = [_figures(grid.printed[model][place]) for model in (better, worse)]
            runs = [_seeds_of(model, results, column=column) for model in (better, worse)]
            pairs = zip(column.metrics, *printed, strict=False)  # no pair where one of the models has no figures
            told = [_comparison(figures, runs, metric=metric, column=column) for metric, *figures in pairs]
            cells.append(" / ".join(told if len({*told}) > 1 else told[:1]) or "-")
        rows.append([f"{grid.models[better]}; {grid.models[worse]}", *cells])
    if {cell for row in rows for cell in row[1:]} <= {"-", NOT_MEASURED}:
        return []
    return [f"## {grid.title}: order of two models", "", _ORDER, "", *_markdown(["pair", *grid.columns], rows)]


def _comparison(printed: Sequence[float], runs: Sequence[Seeds], *, metric: str, column: Column) -> str:
    """Compare the order of two models in our runs with that of their printed scores."""
    first, second = printed
    if not all(runs):
        return NOT_MEASURED
    if first == second:
        return "-"
    ours = [fmean(_scores_of(seeds, metric, column=column)) for seeds in runs]
    error = math.sqrt(sum(_squared_error(seeds, metric, column=column) for seeds in runs))
    is_chance = metric == column.metrics[0] and max(ours) <= column.chance
    if is_chance or abs(ours[0] - ours[1]) <= 2 * error:
        return "no difference"
    return "as printed" if (first > second) == (ours[0] > ours[1]) else "not as printed"


def _squared_error(seeds: Seeds, metric: str, *, column: Column) -> float:
    """The squared standard error of a score: ``s² / n`` over n seeds.

    Of one seed ``Σ_g w_g² p_g (m - p_g) / n_g``, with the share w_g of group g in the mean and its n_g examples: the
    most that means p_g of numbers from 0 to m can have; 0 of other scores.
    """
    scores = _scores_of(seeds, metric, column=column)
    if len(scores) > 1:
        return variance(scores) / len(scores)
    (groups,) = seeds
    if metric not in LARGEST:
        return 0.0
    weights = [1.0 if column.num_tasks else _weight(group) for group in groups]
    squares = [
        weight**2 * group[metric] * (LARGEST[metric] - group[metric]) / group["count"]
        for weight, group in zip(weights, groups, strict=True)
    ]
    return sum(squares) / sum(weights) ** 2


def below_print(table: ResultTable, results: Sequence[Result]) -> list[str]:
    """Return the rows, as COLUMN/MODEL, with a score that is worse than the printed one.

    A variant of the Universal Transformer that the paper does not print is compared with the paper's Universal
    Transformer.
    """
    found = dict[str, None]()
    for grid in table.grids:
        for model in grid.models:
            cells = grid.printed.get(model) or (grid.printed.get("ut", ()) if model.startswith("ut-") else ())
            for column, cell in zip(grid.columns.values(), cells, strict=False):  # without cells nothing is compared
                seeds = _seeds_of(model, results, column=column)
                for metric, printed in zip(column.metrics if seeds else (), _figures(cell), strict=False):
                    ours = fmean(_scores_of(seeds, metric, column=column))
                    if ours < printed if METRICS[metric].best == "high" else ours > printed:
                        found[f"{column.run}/{model}"] = None
    return [*found]


def _figures(cell: Cell) -> tuple[float, ...]:
    return cell if isinstance(cell, tuple) else ()


def _seeds_of(model: str, results: Sequence[Result], *, column: Column) -> Seeds:
    """The groups of each seed of a row, as its best run; none without runs."""
    key = f"{column.run}/{model}".lstrip("/")
    own = [one for one in results if _belongs(one.row, key=key) and groups(one, column=column)]
    best = best_runs(own)
    if not own or column.supports or sum(len(groups(one, column=column)) for one in best) < column.num_tasks:
        return []
    return _over_seeds(best, own, column=column)


def _scores_of(seeds: Seeds, metric: str, *, column: Column) -> list[float]:
    return [_mean(found, metric, column=column) for found in seeds]


def _belongs(row: str, *, key: str) -> bool:
    """Return whether a row is the one called `key`, or one of its tasks."""
    return row == key or row.startswith(f"{key}/")


def _printed(cell: Cell) -> str:
    if cell is None or isinstance(cell, str):
        return cell or "-"
    return " / ".join(f"{one:g}" for one in cell)


def _cell(column: Column, results: Sequence[Result], *, notes: _Notes) -> str:
    """Return a cell of ours: the best run of each of its rows on validation, and the spread over seeds."""
    if column.supports:
        return _steps(best_runs(results), column=column, notes=notes)
    own = [one for one in results if groups(one, column=column)]
    if not own:
        return NOT_MEASURED
    best = best_runs(own)
    found = [group for one in best for group in groups(one, column=column)]
    if len(found) < column.num_tasks:
        return f"{len(found)} of {column.num_tasks} tasks"
    shown = _scores([found], column=column)
    over_seeds = _over_seeds(best, own, column=column)
    if len(over_seeds) > 1:
        shown += f"; {_scores(over_seeds, column=column)} over {len(over_seeds)} seeds"
    return shown + notes.mark(best)


def best_runs(results: Iterable[Result]) -> list[Result]:
    """Return the best run of each row on validation."""
    best: dict[str, Result] = {}
    for result in results:
        if result.row not in best or result.rank < best[result.row].rank:
            best[result.row] = result
    return list(best.values())


def _over_seeds(best: Sequence[Result], results: Sequence[Result], *, column: Column) -> Seeds:
    """Return the groups of each seed that all rows were run with, in the settings of their best runs."""
    by_row = [
        {
            one.seed: groups(one, column=column)
            for one in results
            if (one.row, one.setting) == (chosen.row, chosen.setting)
        }
        for chosen in best
    ]
    seeds = set.intersection(*(set(found) for found in by_row))
    return [[group for found in by_row for group in found[seed]] for seed in sorted(seeds)]


def groups(result: Result, *, column: Column) -> list[Mapping[str, float]]:
    """Return the scores of a run by group, as the column asks for them; none if one of its scores is missing."""
    found: list[Mapping[str, float]] = []
    beginning = f"{column.group}, " if column.group else ""
    if column.shares:
        weights = {f"{beginning}{name}": share for name, share in column.shares.items()}
        found = [{**result.figures[name], "weight": weights[name]} for name in weights if name in result.figures]
    elif column.group in result.figures:
        found = [result.figures[column.group]]
    else:
        found = [scores for name, scores in result.figures.items() if name.startswith(beginning)]
    needed = set(column.metrics) - {"failed"}
    return found if all(needed <= scores.keys() for scores in found) else []


def _mean(found: Sequence[Mapping[str, float]], metric: str, *, column: Column) -> float:
    """Return the mean over groups, weighted by their examples; of "failed" the number of groups."""
    if metric == "failed":
        return float(sum(group["error"] > FAILED_ABOVE for group in found))
    if column.num_tasks:
        return fmean(group[metric] for group in found)
    weights = [_weight(group) for group in found]
    return sum(weight * group[metric] for weight, group in zip(weights, found, strict=True)) / sum(weights)


def _weight(group: Mapping[str, float]) -> float:
    """Return the share of a group in the mean: as the column says, or else its examples."""
    return group.get("weight", group["count"])


def _scores(runs: Sequence[Sequence[Mapping[str, float]]], *, column: Column) -> str:
    """Return each score of a run, or ``mean ± standard deviation`` over several runs."""
    texts = []
    for metric in column.metrics:
        values, decimals = [_mean(run, metric, column=column) for run in runs], METRICS[metric].decimals
        spread = f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else ""
        texts.append(f"{fmean(values):.{decimals}f}{spread}")
    return " / ".join(texts)


def _steps(best: Sequence[Result], *, column: Column, notes: _Notes) -> str:
    counts = [result.steps_by_supports.get(str(column.supports), []) for result in best]
    steps = StepCounts("encoder", tuple(map(sum, zip_longest(*counts, fillvalue=0))))
    if not steps.num_positions:
        return NOT_MEASURED
    if (measured := sum(len(result.figures) for result in best)) < column.num_tasks:
        return f"{measured} of {column.num_tasks} tasks"
    return show_steps(steps) + notes.mark(best)


def summarise(result: Result, *, headline: str = "") -> str:
    """Return the scores of a run in a few words: those of the group `headline`, or their means over all groups."""
    found = [result.figures[headline]] if headline in result.figures else [*result.figures.values()]
    texts = []
    for metric in found[0]:
        if metric not in METRICS.keys() - {"mean_steps", "known_perplexity"}:
            continue
        title, mean = METRICS[metric].title, fmean(group[metric] for group in found if metric in group)
        number = METRICS[metric].text(mean)
        texts.append(f"{title.removesuffix(' %')} {number} %" if title.endswith("%") else f"{title} {number}")
    return ", ".join(texts)


def validation_score(result: Result) -> str:
    """Return the score that the weights were chosen by."""
    if result.classes:
        return f"error {result.validation['error']:.2f} %"
    return f"loss {result.validation['cross_entropy']:.4f}"


def _runs(results: Sequence[Result], *, headline: str) -> list[str]:
    """Return the section that lists all runs, the hardware and versions they used, and their warnings."""
    if not results:
        return ["## Runs", "", "None yet."]
    columns: dict[str, Callable[[Result], str]] = {
        "row": lambda one: one.row,
        "seed": lambda one: str(one.seed),
        f"test ({headline or 'mean over groups'})": lambda one: summarise(one, headline=headline),
        "validation": validation_score,
        "parameters": lambda one: f"{one.parameters:,}",
        "mean steps": lambda one: f"{one.mean_steps:.2f}",
        "updates": lambda one: f"{one.updates:,}",
        "minutes": lambda one: f"{one.seconds / 60:.1f}",
        "resumes": lambda one: str(one.resumes),
        "machine": lambda one: f"{one.hardware.get('gpu', one.hardware['cpu'])}, threads: {one.hardware['threads']}",
        "torch": lambda one: one.versions["torch"],
        "commit": lambda one: show_commit(one.commit, clean=one.clean),
        "config": lambda one: one.config,
    }
    lines = _markdown([*columns], [[show(one) for show in columns.values()] for one in results])
    warnings = [f"- {one.row}, seed {one.seed}: {text}" for one in results for text in one.warnings]
    return ["## Runs", "", *lines, *warnings]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table as lines; a | in a cell is escaped."""
    cells = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    lines = [f"| {row} |" for row in cells]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""]
