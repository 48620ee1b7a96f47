"""A table as Markdown: ours beside the paper's, what is special about a figure, and the runs it is from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean, stdev

from universal_transformer.evaluation import report
from universal_transformer.evaluation.report import Metric
from universal_transformer.recipes.results import Result
from universal_transformer.recipes.table import NOT_MEASURED, Column, Grid, Page, markdown

METRICS: Mapping[str, Metric] = {
    **report.METRICS,
    "perplexity": Metric("perplexity", 1, "low"),  # one decimal less than a report
    "cross_entropy": Metric("cross-entropy (nats)", 3, "low"),
    "mean_steps": Metric("mean steps", 2, "low"),
}
"""Every score that a table knows."""

_CHOICE = """\
Of all runs of a row, ours is the one that is best on validation; test examples choose nothing. Where several
seeds of its settings were run, mean ± standard deviation (n - 1) over them follows.\
"""


def render(results: Sequence[Result], *, page: Page, rows: Collection[str]) -> str:
    """Return the page; `rows` are the names that can be measured, and a cell of one without a run says so."""
    notes = _Notes(results)
    lines = [f"# {page.title}", "", page.introduction.strip(), "", _CHOICE, ""]
    for grid in page.grids:
        lines += [f"## {grid.title}", "", *_grid(grid, results, rows=rows, notes=notes)]
    lines += notes.lines()
    if page.deviations:
        lines += [
            "## Where the protocol differs from the paper's",
            "",
            *(f"- {one}" for one in page.deviations),
        ]
        lines += [""]
    lines += runs(results, headline=page.headline)
    if strange := [one.row for one in results if one.row not in rows]:
        names = ", ".join(dict.fromkeys(strange))
        lines += ["", f"Rows that this version does not have, shown among the runs only: {names}."]
    return "\n".join(lines).rstrip("\n") + "\n"


class _Notes:
    """Numbers of the notes, in the order in which figures need them; what all runs (of a column) share is said once."""

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

    def mark(self, result: Result) -> str:
        said = [*self._shared, *self._of_columns.get(_column(result), [])]
        own = [note for note in result.notes if note not in said]
        numbers = [self._numbers.setdefault(note, len(self._numbers) + 1) for note in own]
        return "".join(f" [{number}]" for number in numbers)

    def lines(self) -> list[str]:
        found = [f"- All of ours: {note}" for note in self._shared]
        found += [f"- All of {name}: {note}" for name, notes in self._of_columns.items() for note in notes]
        found += [f"- [{number}] {note}" for note, number in self._numbers.items()]
        return [*found, ""] if found else []


def _column(result: Result) -> str:
    return result.row.rpartition("/")[0]


def _common(results: Sequence[Result]) -> list[str]:
    """Notes that all of them have."""
    return [note for note in results[0].notes if all(note in one.notes for one in results)] if results else []


def _grid(grid: Grid, results: Sequence[Result], *, rows: Collection[str], notes: _Notes) -> list[str]:
    lines = []
    for model, title in grid.models.items():
        if model in grid.printed:
            cells = zip(grid.printed[model], grid.columns, strict=True)
            shown = ["-" if cell is None else " / ".join(f"{one:g}" for one in cell) for cell, _ in cells]
            lines.append([title, grid.source, *shown])
        if any(f"{column.run}/{model}" in rows for column in grid.columns.values()):
            cells_of_ours = (
                _cell(column, results, row=f"{column.run}/{model}", rows=rows, notes=notes)
                for column in grid.columns.values()
            )
            lines.append([title, "ours", *cells_of_ours])
    scores = dict.fromkeys(" / ".join(_titles(column.metrics)) for column in grid.columns.values())
    unit = f"{next(iter(scores))}." if len(scores) == 1 else ""
    unit = unit[:1].upper() + unit[1:]  # capitalize() would write Bleu
    heads = [
        name if unit else f"{name}: {' / '.join(_titles(column.metrics))}"
        for name, column in grid.columns.items()
    ]
    return [*([unit, ""] if unit else []), *markdown(["model", "from", *heads], lines)]


def _titles(metrics: Sequence[str]) -> list[str]:
    return [METRICS[metric].title for metric in metrics]


def _cell(
    column: Column, results: Sequence[Result], *, row: str, rows: Collection[str], notes: _Notes
) -> str:
    if row not in rows:
        return "-"
    own = [one for one in results if one.row == row and scores(one, column=column) is not None]
    if not own:
        return NOT_MEASURED
    best = min(own, key=lambda one: one.rank)
    seeds = [scores(one, column=column) or () for one in own if one.setting == best.setting]
    shown = _joined([(value,) for value in scores(best, column=column) or ()], column.metrics)
    if len(seeds) > 1:
        by_metric = list(zip(*seeds, strict=True))
        shown += f"; {_joined(by_metric, column.metrics)} over {len(seeds)} seeds"
    return shown + notes.mark(best)


def _joined(values: Iterable[Sequence[float]], metrics: Sequence[str]) -> str:
    """Write one value a score, or the mean and spread of several."""
    pairs = zip(values, metrics, strict=True)
    return " / ".join(spread(found, decimals=METRICS[metric].decimals) for found, metric in pairs)


def spread(values: Sequence[float], *, decimals: int) -> str:
    """Return a value, or ``mean ± standard deviation`` of several."""
    if len(values) == 1:
        return f"{values[0]:.{decimals}f}"
    return f"{fmean(values):.{decimals}f} ± {stdev(values):.{decimals}f}"


def scores(result: Result, *, column: Column) -> tuple[float, ...] | None:
    """Return the figures of a run in a column; None where it has not all of them."""
    groups = [result.figures[column.group]] if column.group in result.figures else []
    if not groups:
        beginning = f"{column.group}, " if column.group else ""
        groups = [found for name, found in result.figures.items() if name.startswith(beginning)]
    if not groups or any(metric not in group for group in groups for metric in column.metrics):
        return None
    return tuple(_mean(groups, metric) for metric in column.metrics)


def _mean(groups: Sequence[Mapping[str, float]], metric: str) -> float:
    total = sum(group["count"] for group in groups)
    return sum(group["count"] * group[metric] for group in groups) / total


def account(result: Result, *, headline: str = "") -> str:
    """Say in a few words what a run came to: its scores in the group `headline`, or their means over all groups."""
    groups = [result.figures[headline]] if headline in result.figures else [*result.figures.values()]
    first = groups[0]
    said = METRICS.keys() - {"mean_steps", "known_perplexity"}
    known = [metric for metric in first if metric in said]
    found = []
    for metric in known:
        values = [group[metric] for group in groups if metric in group]
        title, decimals, _ = METRICS[metric]
        number = f"{fmean(values):.{decimals}f}"
        found.append(f"{title.removesuffix(' %')} {number} %" if title.endswith("%") else f"{title} {number}")
    return ", ".join(found)


def validated(result: Result) -> str:
    """Say what the weights were chosen by."""
    if result.classes:
        return f"error {result.validation['error']:.2f} %"
    return f"loss {result.validation['cross_entropy']:.4f}"


def runs(results: Sequence[Result], *, headline: str = "") -> list[str]:
    """Return the section that lists all runs, with what they were made on, and their warnings."""
    if not results:
        return ["## Runs", "", "None yet."]
    rows = []
    for one in results:
        commit = "unknown" if one.commit is None else one.commit[:10] + ("" if one.clean else " (changed)")
        machine = f"{one.hardware.get('gpu', one.hardware['cpu'])}, threads: {one.hardware['threads']}"
        rows.append(
            [
                *(
                    one.row,
                    str(one.seed),
                    account(one, headline=headline),
                    validated(one),
                    f"{one.parameters:,}",
                ),
                *(f"{one.mean_steps:.2f}", f"{one.updates:,}", f"{one.seconds / 60:.1f}"),
                *(str(one.resumes), machine, one.versions["torch"], commit, one.config),
            ]
        )
    test = f"test ({headline or 'mean over groups'})"
    head = ["row", "seed", test, "validation", "parameters", "mean steps", "updates"]
    lines = markdown([*head, "minutes", "resumes", "machine", "torch", "commit", "config"], rows)
    warnings = [f"- {one.row}, seed {one.seed}: {text}" for one in results for text in one.warnings]
    return ["## Runs", "", *lines, *warnings]
