"""Measure a table: train what is not recorded yet, record each run when it is finished, write the table.

A run is recorded once: its key is (row, seed, digest of its configuration). One that was interrupted is gone on with
from its folder, ``RUNS/TABLE/ROW/seed-N-DIGEST``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from universal_transformer.errors import UserError
from universal_transformer.files import show_path, write_text
from universal_transformer.recipes.page import account, validated
from universal_transformer.recipes.results import Result, ResultsFile, Say
from universal_transformer.recipes.runs import Planned, Stop, Unfinished, Workshop, pending
from universal_transformer.recipes.table import Table
from universal_transformer.training.provenance import checkout

SHORTEST = 20.0
"""Seconds: with less time than that left, or than a tenth of the time there was, no run is begun."""

Maker = Callable[[Sequence[Planned], Workshop], Iterator[tuple[Planned, Result | UserError]]]
"""Makes runs in some order, one after the other or side by side: a run that is finished, or why it is not."""


@dataclass
class Outcome:
    """What came of it."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """One line for each run that could not be made."""
    left: int = 0
    """Runs that are still to be made."""
    stopped: Stop | None = None
    """What ended it before all runs were tried."""


def results_file(table: Table, folder: Path, *, say: Say) -> ResultsFile:
    """Return the file that the table's results are in."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{show_path(folder)}: a file; expected the folder that results are kept in")
    return ResultsFile(folder / f"{table.name}.jsonl", table=table.name, say=say)


def write_table(table: Table, file: ResultsFile) -> Path:
    """Write the table's Markdown beside its results; return its path."""
    path = file.path.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, table.render(file.read()))
    return path


def one_by_one(todo: Sequence[Planned], workshop: Workshop) -> Iterator[tuple[Planned, Result | UserError]]:
    """Make runs one after the other, as long as there is time.

    A run that fails is left for another time and the next one made; but data of the first one that cannot be read
    are a UserError, for the others will hardly fare better.
    """
    least = min(SHORTEST, workshop.rest / 10)
    for number, run in enumerate(todo, start=1):
        if workshop.rest < least:
            raise Unfinished("budget")
        try:
            task = run.config.data.load()
        except UserError as error:
            if number == 1:
                raise
            yield run, error
            continue
        workshop.say(f"[{number}/{len(todo)}] {run.name}: {run.limit}, in {show_path(workshop.folder(run))}")
        try:
            result = workshop.make(run, task=task)
        except UserError as error:
            yield run, error
        else:
            yield run, result


def reproduce(
    planned: Sequence[Planned], workshop: Workshop, *, results: Path, maker: Maker = one_by_one
) -> Outcome:
    """Make every run of `planned` that is not recorded, and record it; the table is written after each."""
    table, say = workshop.table, workshop.say
    file = results_file(table, results, say=say)
    todo = pending(planned, file.read())
    say(f"{len(planned) - len(todo)} of {len(planned)} runs are recorded in {show_path(file.path)}")
    outcome = Outcome(left=len(todo))
    checkout()  # now: what is committed while runs go on is not what they run
    try:
        for run, found in maker(todo, workshop):
            if isinstance(found, UserError):
                outcome.failed.append(f"{run.name}: {found}")
                say(f"{run.name}: not finished")
                continue
            results.mkdir(parents=True, exist_ok=True)
            if not file.append(found):
                say(f"{run.name}: another process has recorded it meanwhile")
            outcome.done.append(run.name)
            outcome.left -= 1
            say(f"{run.name}: {_account(found, headline=table.headline)}")
            write_table(table, file)
    except Unfinished as unfinished:
        results.mkdir(parents=True, exist_ok=True)
        outcome.stopped = unfinished.reason
    return outcome


def _account(result: Result, *, headline: str) -> str:
    return (
        f"{account(result, headline=headline)} (validation {validated(result)}), "
        f"{result.mean_steps:.2f} steps a position, {result.updates:,} updates in {result.seconds / 60:.1f} minutes"
    )
