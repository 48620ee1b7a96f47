"""``ut reproduce``: measure a table of the paper, or chosen rows of it; a second call continues."""

from __future__ import annotations

import argparse
import math
import os
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import (
    DATA_DIR,
    FAILED,
    INTERRUPTED,
    Parser,
    data_dir,
    note,
    number,
    whole,
)
from universal_transformer.errors import UserError

if TYPE_CHECKING:
    from paper.campaign import ReproductionOutcome
    from paper.definition import ResultTable
    from paper.results import ResultsFile
    from paper.runs import PlannedRun

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def run(arguments: list[str]) -> int:
    """Train and record what is missing, write the table; 1 if a run failed, 130 when interrupted."""
    started = time.monotonic()
    options = parser().parse(arguments)
    from paper.campaign import reproduce, write_table
    from paper.processes import end_with_parent, in_processes
    from paper.results import ResultsFile
    from paper.runs import Runner, pending, plan
    from paper.tables import choose_rows, find_table

    table = find_table(options.table)
    wanted = {name: _names(vars(options)[name], option=name) for name in ("rows", "columns", "models", "tasks")}
    rows = choose_rows(table, **wanted)
    planned = plan(table, rows, seeds=options.seeds, minutes=options.minutes, updates=options.updates)
    say = note if options.dry_run or options.render else _say
    if Path(options.results).is_file():
        raise UserError(f"--results {options.results}: a file; expected a folder")
    file = ResultsFile(Path(options.results, f"{table.name}.jsonl"), table=table.name, say=say)
    if options.share is not None:
        end_with_parent()
    if options.dry_run:
        _show_plan(planned, pending(planned, file.read()))
        return 0
    if options.render:
        print(f"written to {write_table(table, file)}")
        _draw(table, file)
        return 0
    file.check_folder()
    until = math.inf if options.budget is None else started + options.budget
    runner = Runner(table=table, runs=Path(options.runs), say=_say, quiet=options.quiet, until=until)
    with data_dir(options.data_dir):
        if options.share is not None:
            return _share(reproduce(planned, runner, file=file, share=(options.share, options.processes)))
        if options.processes > 1:
            todo = pending(planned, file.read())
            if todo:
                todo[0].config.data.load()  # missing data are reported here, once
            outcome = in_processes(arguments, count=min(options.processes, len(todo)))
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


def _share(outcome: ReproductionOutcome) -> int:
    """Return the exit code of a process that made its share of the runs."""
    for text in outcome.failed:
        note(f"ut: {' '.join(text.split())}")
    if outcome.stopped is not None:
        return INTERRUPTED if outcome.stopped == "interrupted" else os.EX_TEMPFAIL
    return FAILED if outcome.failed else 0


def parser() -> Parser:
    """Return the parser of ``ut reproduce``."""
    parser = Parser(
        "reproduce",
        description="Measure a table of the paper and write it next to the paper's figures. A finished run is "
        "recorded at once in RESULTS/TABLE.jsonl and never repeated; an interrupted run continues when the command is "
        "repeated.",
    )
    add = parser.add_argument
    add("table", metavar="TABLE", help="table1 (bAbI), …; ut recipes lists them")
    for option, text in (
        (
            "rows",
            "rows by name, or beginnings of names: 10k-single/ut-halting/4, 10k-single/ut (default: all)",
        ),
        ("columns", "first parts of names: 10k-single, copy, …"),
        ("models", "second parts of names: transformer, ut, ut-halting, …"),
        ("tasks", "third parts of names, in table 1: 1,4,5"),
    ):
        add(f"--{option}", action="extend", nargs="+", metavar="NAME", default=[], help=text)
    text = "number of runs of each row, with seeds 0 to N - 1 (default: 1)"
    add("--seeds", type=whole(1), default=1, metavar="N", help=text)
    text = "train each run for M minutes (default: the recipe's minutes or updates)"
    add("--minutes", type=number(least=0.0, open_below=True), metavar="M", help=text)
    text = "train each run for N updates; with --minutes, until the first limit is reached"
    add("--updates", type=whole(1), metavar="N", help=text)
    text = "time for the whole command, such as 8m; a run in progress is then saved, and the next call continues it"
    add("--budget", type=duration, metavar="TIME", help=text)
    text = "make up to K runs at a time, each in a process of its own (default: 1)"
    add("--processes", type=whole(1), default=1, metavar="K", help=text)
    add("--share", type=whole(0), help=argparse.SUPPRESS)  # the place of one of K processes
    add("--results", metavar="FOLDER", default="results/paper", help="where results are kept")
    add("--runs", metavar="FOLDER", default="runs", help="where run folders are kept")
    add("--data-dir", metavar="FOLDER", default="", help=DATA_DIR)
    add("--dry-run", action="store_true", help="list the runs to be made; train nothing")
    add("--render", action="store_true", help="only write the table from the recorded runs")
    add("--quiet", action="store_true", help="show no progress of training")
    return parser


def duration(text: str) -> float:
    """Return seconds: 90s, 8m, 1.5h or 1h30m."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    seconds = sum(float(value) * _SECONDS[unit] for value, unit in parts)
    if "".join(value + unit for value, unit in parts) != text or not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 8m or 1h30m")
    return seconds


def _names(given: list[str], *, option: str) -> list[str]:
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
    curves = table.curves(file.read()) if table.curves is not None else {}
    if not curves:
        return
    if find_spec("matplotlib") is None:
        note("ut: no plot, because matplotlib is not installed: pip install 'universal-transformer[plot]'")
        return
    from paper.depth_figure import depth_curves
    from universal_transformer.explore.canvas import svg

    path = file.path.with_suffix(".svg")
    path.write_bytes(svg(depth_curves(curves)))
    print(f"plotted in {path}")


def _say(text: str) -> None:
    print(text, flush=True)
