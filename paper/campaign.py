"""Measure a table: train what is not recorded yet, record each run when it is finished, write the table.

A run is recorded once: its key is (row, seed, digest of its configuration). An interrupted run continues from its
folder, ``RUNS/TABLE/ROW/seed-N-DIGEST``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paper.definition import ResultTable
from paper.records import recorded
from paper.rendering import render, summarise, validation_score
from paper.results import Result, ResultsFile
from paper.runs import PlannedRun, Runner, Stop, Unfinished, pending
from universal_transformer.errors import UserError
from universal_transformer.files import show_path, write_text
from universal_transformer.training.provenance import code_in_use


@dataclass
class ReproductionOutcome:
    """The result of one call of `reproduce`."""

    failed: list[str] = field(default_factory=list)
    """One line for each run that could not be made."""
    left: int = 0
    """Runs that are still to be made."""
    stopped: Stop | None = None
    """What ended it before all runs were tried."""


def all_results(table: ResultTable, file: ResultsFile) -> list[Result]:
    """Return the recorded runs of a table, and those of its records."""
    return [*file.read(), *recorded(table.records, file.path.parent.parent / "runs", table=table.name)]


def write_table(table: ResultTable, file: ResultsFile) -> Path:
    """Write the table's Markdown next to its results; return its path."""
    path = file.path.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render(table, all_results(table, file)))
    return path


def reproduce(
    planned: Sequence[PlannedRun], runner: Runner, *, file: ResultsFile, place: int | None = None
) -> ReproductionOutcome:
    """Make every run of `planned` that is not recorded, or only the run of one `place`, and record it.

    The table is written after each run. After a run that fails, the next one is made. If the data of the first run
    cannot be read, that is a UserError: the others would probably fail too.
    """
    say = runner.say
    left = pending(planned, file.read())
    if place is None:
        say(f"{len(planned) - len(left)} of {len(planned)} runs are recorded in {show_path(file.path)}")
    todo = [run for run in left if place is None or run is planned[place]]
    outcome = ReproductionOutcome(left=len(todo))
    code_in_use()  # before the runs: a later commit is not the code that they run
    least = runner.shortest
    try:
        for run in todo:
            if runner.rest < least:
                raise Unfinished("budget")
            try:
                task = run.config.data.load()
            except UserError as error:
                if place is None and run is todo[0]:
                    raise
                outcome.failed.append(f"{run.name}: {error}")
                continue
            say(
                f"[{planned.index(run) + 1}/{len(planned)}] {run.name}: {run.limit}, in {show_path(runner.folder(run))}"
            )
            try:
                result = runner.make(run, task=task)
            except UserError as error:
                outcome.failed.append(f"{run.name}: {error}")
                say(f"{run.name}: not finished")
                continue
            _record(result, run, runner, file=file)
            outcome.left -= 1
    except Unfinished as unfinished:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        outcome.stopped = unfinished.reason
    return outcome


def _record(result: Result, run: PlannedRun, runner: Runner, *, file: ResultsFile) -> None:
    if not file.append(result):
        runner.say(f"{run.name}: another process has recorded it already")
    scores = summarise(result, headline=runner.table.headline)
    runner.say(
        f"{run.name}: {scores} ({runner.table.headline or 'mean over groups'}; validation {validation_score(result)}), "
        f"{result.mean_steps:.2f} steps a position, {result.updates:,} updates in {result.seconds / 60:.1f} minutes"
    )
    write_table(runner.table, file)
