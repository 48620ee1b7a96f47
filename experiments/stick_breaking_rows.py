"""Compare ACT with stick-breaking in the rows of the tables whose cap is twice the fixed depth.

    python experiments/stick_breaking_rows.py FOLDER [ROW ...]

Trains each row again with `halting.rule` stick_breaking and no other change, for the recorded number of updates, adds a
line to results/studies/stick_breaking_rows.jsonl for each run that has none, and writes
results/studies/stick_breaking_rows.md with the recorded figures of a fixed depth and of ACT in the same row (seed 0; 2
to 16 minutes of one core a row). Runs are in FOLDER; one that was stopped is continued. All rows but the copies need
UT_DATA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from study import PROJECT, arguments, write_page

from paper.definition import Column
from paper.rendering import METRICS, groups
from paper.results import Result, ResultsFile
from paper.runs import PlannedRun, Runner
from paper.tables import find_table
from universal_transformer.evaluation.report import StepCounts
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import replaced

RESULTS = PROJECT / "results"
NAME = "stick_breaking_rows"


class Row(NamedTuple):
    """A row of a table with halting, and the score by which rules are compared."""

    table: str
    column: str
    updates: int
    metric: str
    group: str = ""


ROWS = {
    "bAbI 1K joint": Row("table1", "1k-joint", 3300, "error"),
    "agreement": Row("table2", "agreement", 1900, "accuracy", "verbs"),
    "LAMBADA as reading": Row("table3", "lambada-reading", 1400, "accuracy", "test"),
    "copy of 40 digits": Row("table4", "copy", 800, "character_accuracy", "length 40"),
    "copy of 55 digits": Row("table5", "copy", 600, "character_accuracy"),
    "programs of additions": Row("table6", "addition", 1500, "character_accuracy"),
    "Multi30k": Row("table7", "multi30k", 1400, "bleu", "test_2016_flickr"),
}
COMPARED = {"fixed depth": "ut", "ACT": "ut-halting", "ACT, twice the cap": "ut-halting-2x"}
"""Recorded models of the same columns."""


def say(text: str) -> None:
    print(text, flush=True)


def results_of(name: str) -> ResultsFile:
    return ResultsFile(RESULTS / ("studies" if name == NAME else "paper") / f"{name}.jsonl", table=name, say=say)


def configuration(row: Row) -> RunConfig:
    config = find_table(row.table).rows[f"{row.column}/ut-halting-2x"]()
    changes = {"model.halting.rule": "stick_breaking", "training.minutes": None, "training.max_updates": row.updates}
    return replaced(config, changes)


def shown(result: Result, row: Row) -> str:
    """Return the score, the mean steps of each side and the updates of a run."""
    found = groups(result, column=Column(group=row.group, metrics=(row.metric,)))
    score = sum(group["count"] * group[row.metric] for group in found) / sum(group["count"] for group in found)
    sides = [StepCounts(side, tuple(counts)) for side, counts in result.steps.items()]
    steps = ", ".join(f"{one.mean:.2f} {one.side}" for one in sides) or f"{result.mean_steps:.2f}"
    return f"{score:.{METRICS[row.metric].decimals}f} in {steps} ({result.updates:,})"


def nearest(row: Row, model: str) -> Result:
    """Return the latest recorded run of a model, with seed 0, whose updates are nearest to those of the row."""
    own = [one for one in results_of(row.table).read() if (one.row, one.seed) == (f"{row.column}/{model}", 0)]
    return min(reversed(own), key=lambda one: abs(one.updates - row.updates))


def page(results: Sequence[Result]) -> Iterator[str]:
    yield "# ACT and stick-breaking in the rows of the tables\n"
    yield "`python experiments/stick_breaking_rows.py FOLDER`: the score on test data, the mean steps and, in brackets,"
    yield "the updates of one run with seed 0. Fixed depth and ACT are the runs of the tables with the nearest"
    yield "updates.\n"
    yield f"| row | score | {' | '.join(COMPARED)} | stick-breaking, twice the cap |"
    yield f"|---|---|{'---|' * (len(COMPARED) + 1)}"
    for title, row in ROWS.items():
        others = [shown(nearest(row, model), row) for model in COMPARED.values()]
        own = [shown(result, row) for result in results if result.row == title] or ["not measured"]
        yield f"| {title} | {METRICS[row.metric].title} | {' | '.join(others + own)} |"


def main(folder: Path, titles: Sequence[str]) -> None:
    file = results_of(NAME)
    for title in titles or ROWS:
        row = ROWS[title]
        run = PlannedRun(title, configuration(row))
        if run.key not in {result.key for result in file.read()}:
            runner = Runner(table=replace(find_table(row.table), name=NAME), runs=folder, say=say)
            say(f"{title}: {run.limit}, in {runner.folder(run)}")
            file.append(runner.make(run, task=run.config.data.load()))
        write_page(RESULTS / "studies" / f"{NAME}.md", page(file.read()))


if __name__ == "__main__":
    folder, *titles = arguments(__doc__, known=ROWS)
    main(Path(folder), titles)
