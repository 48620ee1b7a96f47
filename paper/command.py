"""``ut reproduce``: measure a table of the paper, or chosen rows of it; a second call continues."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from universal_transformer.cli.output import FAILED, INTERRUPTED, note
from universal_transformer.cli.parser import OptionForm, Place
from universal_transformer.cli.shared_options import Folder, GivenArguments, MoreThanZero, OnData
from universal_transformer.errors import UserError
from universal_transformer.typed import Positive, Range

if TYPE_CHECKING:
    from paper.campaign import ReproductionOutcome
    from paper.definition import ResultTable
    from paper.results import ResultsFile
    from paper.runs import PlannedRun

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
Names = Annotated[tuple[str, ...], OptionForm("NAME")]


@dataclass(frozen=True, kw_only=True)
class Reproduce(OnData):
    """Measure a table of the paper and write it next to the paper's figures.

    A finished run is recorded at once in RESULTS/TABLE.jsonl and never repeated; an interrupted run continues when the
    command is repeated.
    """

    table: Annotated[str, OptionForm("TABLE", place=Place.WORD)]
    """The table: table1 (bAbI), …; ut recipes lists them."""
    rows: Names = ()
    """Rows by name, or beginnings of names: 10k-single/ut-halting/4, 10k-single/ut (default: all)."""
    columns: Names = ()
    """First parts of names: 10k-single, copy, …"""
    models: Names = ()
    """Second parts of names: transformer, ut, ut-halting, …"""
    tasks: Names = ()
    """Third parts of names, in table 1: 1,4,5."""
    seeds: Positive = 1
    """Number of runs of each row, with seeds 0 to N - 1."""
    minutes: Annotated[MoreThanZero, OptionForm("M")] | None = None
    """Train each run for M minutes (default: the recipe's minutes or updates)."""
    updates: Positive | None = None
    """Train each run for N updates; with --minutes, until the first limit is reached."""
    batch_tokens: Positive | None = None
    """Train with batches of N tokens, such as larger ones on a GPU (default: the recipe's)."""
    budget: Annotated[str, OptionForm("TIME")] = ""
    """Time for the whole command, such as 8m; a run in progress is then saved, and the next call continues it."""
    processes: Annotated[Positive, OptionForm("K")] = 1
    """Make up to K runs at a time, each in a process of its own."""
    place: Annotated[int, Range(0)] | None = None
    """Make only the run of this place among all, counted from 0; --processes starts such commands."""
    results: Folder = "results/paper"
    """Where results are kept."""
    runs: Folder = "runs"
    """Where run folders are kept."""
    dry_run: bool = False
    """List the runs to be made; train nothing."""
    render: bool = False
    """Only write the table from the recorded runs."""
    quiet: bool = False
    """Show no progress of training."""
    arguments: GivenArguments = ()

    def __call__(self) -> int:
        """Train and record what is missing, write the table; 1 if a run failed, 130 when interrupted."""
        started = time.monotonic()
        from paper.campaign import reproduce, write_table
        from paper.processes import end_with_parent, in_processes
        from paper.results import ResultsFile
        from paper.runs import Runner, pending, plan
        from paper.tables import choose_rows, find_table

        table = find_table(self.table)
        wanted = {name: _names(getattr(self, name), option=name) for name in ("rows", "columns", "models", "tasks")}
        rows = choose_rows(table, **wanted)
        planned = plan(
            table,
            rows,
            seeds=self.seeds,
            minutes=self.minutes,
            updates=self.updates,
            batch_tokens=self.batch_tokens,
        )
        say = note if self.dry_run or self.render else _say
        if Path(self.results).is_file():
            raise UserError(f"--results {self.results}: a file; expected a folder")
        file = ResultsFile(Path(self.results, f"{table.name}.jsonl"), table=table.name, say=say)
        if self.place is not None:
            if self.place >= len(planned):
                raise UserError(f"--place {self.place}: expected a number below {len(planned)}, that of the runs")
            end_with_parent()
        if self.dry_run:
            _show_plan(planned, pending(planned, file.read()))
            return 0
        if self.render:
            print(f"written to {write_table(table, file)}")
            _draw(table, file)
            return 0
        file.check_folder()
        until = math.inf if self.budget == "" else started + duration(self.budget)
        runner = Runner(table=table, runs=Path(self.runs), say=_say, quiet=self.quiet, until=until)
        if self.place is not None:
            return _alone(reproduce(planned, runner, file=file, place=self.place))
        if self.processes > 1:
            todo = pending(planned, file.read())
            if todo:
                todo[0].config.data.load()  # missing data are reported here, once
            places = [planned.index(run) for run in todo]
            outcome = in_processes(self.arguments, places=places, processes=self.processes, runner=runner)
            outcome.left = len(pending(planned, file.read()))
        else:
            outcome = reproduce(planned, runner, file=file)
        if file.path.parent.is_dir():
            where = f"the runs are in {file.path}" if file.path.is_file() else "no run is recorded yet"
            print(f"written to {write_table(table, file)}; {where}")
            _draw(table, file)
        if outcome.stopped == "interrupted":
            note("ut: interrupted, saved; the same command continues")
            return INTERRUPTED
        if outcome.stopped == "budget":
            note(f"ut: the budget is used up, {outcome.left} runs are left; the same command continues")
        for text in outcome.failed:
            note(f"ut: {' '.join(text.split())}")
        return FAILED if outcome.failed else 0


def _alone(outcome: ReproductionOutcome) -> int:
    """Return the exit code of a process that made one run of several."""
    for text in outcome.failed:
        note(f"ut: {' '.join(text.split())}")
    if outcome.stopped == "interrupted":
        return INTERRUPTED
    return FAILED if outcome.failed else os.EX_TEMPFAIL if outcome.stopped else 0


def duration(text: str) -> float:
    """Return seconds: 90s, 8m, 1.5h or 1h30m."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    seconds = sum(float(value) * _SECONDS[unit] for value, unit in parts)
    if "".join(value + unit for value, unit in parts) != text or not 0 < seconds < math.inf:
        raise UserError(f"--budget: {text!r}: expected a time such as 90s, 8m or 1h30m")
    return seconds


def _names(given: Sequence[str], *, option: str) -> list[str]:
    """Split at commas as well as blanks."""
    names = [name.strip() for text in given for name in text.split(",")]
    if "" in names:
        raise UserError(f"--{option} {' '.join(given)}: an empty name in it; separate names by commas or blanks")
    return names


def _show_plan(planned: list[PlannedRun], todo: list[PlannedRun]) -> None:
    for one in todo:
        print(f"{one.row}  seed {one.config.training.seed}  {one.limit}")
    # a run limited only by updates adds no minutes to the sum
    minutes = sum(one.config.training.minutes or 0.0 for one in todo)
    by_updates = sum(not one.config.training.minutes for one in todo)
    times = [f"{minutes:g} minutes"] * bool(minutes)
    times += [f"{by_updates} limited by updates, not by time"] * bool(by_updates)
    to_make = f"{len(todo)} to make{': ' * bool(times)}{', and '.join(times)}"
    print(f"{len(planned) - len(todo)} of {len(planned)} runs are recorded; {to_make}")


def _draw(table: ResultTable, file: ResultsFile) -> None:
    """Plot the curves of a table that has them, if matplotlib is installed."""
    results = file.read()
    if table.figure is None and not any(one.curve for one in results):
        return
    if find_spec("matplotlib") is None:
        note("ut: no plot, because matplotlib is not installed: pip install 'universal-transformer[plot]'")
        return
    from paper.learning_curves import learning_curves
    from universal_transformer.explore.canvas import svg

    figure = learning_curves(table, results) if table.figure is None else table.figure(results)
    if figure is not None:
        path = file.path.with_suffix(".svg")
        path.write_bytes(svg(figure))
        print(f"plotted in {path}")


def _say(text: str) -> None:
    print(text, flush=True)
