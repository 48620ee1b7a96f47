"""Measure a table: train what is not recorded yet, record each run when it is finished, write the table.

A run is recorded once: its key is (row, seed, digest of its configuration). An interrupted run continues from its
folder, ``RUNS/TABLE/ROW/seed-N-DIGEST``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paper.definition import ResultTable
from paper.rendering import render, summarise, validation_score
from paper.results import Result, ResultsFile
from paper.runs import PlannedRun, Runner, Stop, Unfinished, pending
from universal_transformer.errors import UserError
from universal_transformer.files import show_path, write_text
from universal_transformer.training.provenance import code_in_use

Scheduler = Callable[[Sequence[PlannedRun], Runner], Iterator[tuple[PlannedRun, Result | UserError]]]
"""Makes runs one after the other or in parallel, and yields each with its result or its error."""


@dataclass
class ReproductionOutcome:
    """The result of one call of `reproduce`."""

    failed: list[str] = field(default_factory=list)
    """One line for each run that could not be made."""
    left: int = 0
    """Runs that are still to be made."""
    stopped: Stop | None = None
    """What ended it before all runs were tried."""


def write_table(table: ResultTable, file: ResultsFile) -> Path:
    """Write the table's Markdown next to its results; return its path."""
    path = file.path.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    with file.held() as results:  # until the page is written: another campaign may end at the same time
        write_text(path, render(table, results))
    return path


def one_by_one(todo: Sequence[PlannedRun], runner: Runner) -> Iterator[tuple[PlannedRun, Result | UserError]]:
    """Make runs one after the other, as long as there is time.

    After a run that fails, the next one is made. If the data of the first run cannot be read, that is a UserError:
    the other runs would probably fail too.
    """
    least = runner.shortest
    for number, run in enumerate(todo, start=1):
        if runner.rest < least:
            raise Unfinished("budget")
        try:
            task = run.config.data.load()
        except UserError as error:
            if number == 1:
                raise
            yield run, error
            continue
        runner.say(f"[{number}/{len(todo)}] {run.name}: {run.limit}, in {show_path(runner.folder(run))}")
        try:
            result = runner.make(run, task=task)
        except UserError as error:
            yield run, error
        else:
            yield run, result


def reproduce(
    planned: Sequence[PlannedRun], runner: Runner, *, file: ResultsFile, scheduler: Scheduler
) -> ReproductionOutcome:
    """Make every run of `planned` that is not recorded, and record it; the table is written after each run."""
    table, say = runner.table, runner.say
    todo = pending(planned, file.read())
    say(f"{len(planned) - len(todo)} of {len(planned)} runs are recorded in {show_path(file.path)}")
    outcome = ReproductionOutcome(left=len(todo))
    code_in_use()  # before the runs: a later commit is not the code that they run
    try:
        for run, found in scheduler(todo, runner):
            if isinstance(found, UserError):
                outcome.failed.append(f"{run.name}: {found}")
                say(f"{run.name}: not finished")
                continue
            if not file.append(found):
                say(f"{run.name}: another process has recorded it already")
            outcome.left -= 1
            say(
                f"{run.name}: {summarise(found, headline=table.headline)} (validation {validation_score(found)}), "
                f"{found.mean_steps:.2f} steps a position, {found.updates:,} updates in "
                f"{found.seconds / 60:.1f} minutes"
            )
            write_table(table, file)
    except Unfinished as unfinished:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        outcome.stopped = unfinished.reason
    return outcome
