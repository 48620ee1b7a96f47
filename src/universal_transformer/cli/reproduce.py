"""``ut reproduce``: measure a table of the paper, as far as it is asked for; called again, it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import DATA_DIR, Parser, data_dir, note, number, whole
from universal_transformer.errors import UserError

if TYPE_CHECKING:
    from universal_transformer.recipes.reproduce import Planned

FAILED, INTERRUPTED = 1, 130


def run(arguments: list[str]) -> int:
    """Train and record what is missing, write the table; 1 if a run failed, 130 when interrupted."""
    options = parser().parse(arguments)
    from universal_transformer.recipes.reproduce import pending, plan, reproduce, results_file, write_table
    from universal_transformer.recipes.tables import choose_rows, find_table

    table = find_table(options.table)
    rows = choose_rows(
        table,
        rows=_names(options.rows, option="--rows"),
        columns=_names(options.columns, option="--columns"),
        models=_names(options.models, option="--models"),
        tasks=_names(options.tasks, option="--tasks"),
    )
    planned = plan(table, rows, seeds=options.seeds, minutes=options.minutes)
    results, file = Path(options.results), results_file(table, Path(options.results), say=note)
    if options.dry_run:
        _show_plan(planned, pending(planned, file.read()))
        return 0
    if options.render:
        print(f"written to {write_table(table, file)}")
        return 0
    with data_dir(options.data_dir):
        outcome = reproduce(
            table, planned, results=results, runs=Path(options.runs), say=_say, quiet=options.quiet
        )
    if results.is_dir():
        print(f"written to {write_table(table, file)}; the runs are in {file.path}")
    if outcome.interrupted:
        note("ut: interrupted, saved; the same command goes on")
        return INTERRUPTED
    for text in outcome.failed:
        note(f"ut: {' '.join(text.split())}")
    return FAILED if outcome.failed else 0


def parser() -> Parser:
    """Return the parser of ``ut reproduce``."""
    parser = Parser(
        "reproduce",
        description="Measure a table of the paper and write it beside the paper's figures. A finished run is recorded "
        "at once in RESULTS/TABLE.jsonl and never made again; an interrupted one goes on when the command is repeated.",
    )
    parser.add_argument("table", metavar="TABLE", help="table1 (bAbI)")
    for option, text in (
        (
            "--rows",
            "rows by name, or beginnings of names: 10k-single/ut-halting/4, 10k-single/ut (default: all)",
        ),
        ("--columns", "10k-single, 10k-joint, 1k-single, 1k-joint"),
        ("--models", "transformer, ut, ut-halting"),
        ("--tasks", "bAbI tasks, for columns of one task a model: 1,4,5"),
    ):
        parser.add_argument(option, nargs="+", metavar="NAME", default=[], help=text)
    parser.add_argument(
        "--seeds",
        type=whole(1),
        default=1,
        metavar="N",
        help="runs a row, with seeds 0 to N - 1 (default: 1)",
    )
    parser.add_argument(
        "--minutes",
        type=number(least=0.0, open_below=True),
        metavar="M",
        help="minutes to train a run (default: the recipe's)",
    )
    parser.add_argument("--results", metavar="FOLDER", default="results", help="where results are kept")
    parser.add_argument("--runs", metavar="FOLDER", default="runs", help="where run folders are kept")
    parser.add_argument("--data-dir", metavar="FOLDER", default="", help=DATA_DIR)
    parser.add_argument("--dry-run", action="store_true", help="list the runs to be made; train nothing")
    parser.add_argument("--render", action="store_true", help="only write the table of what is recorded")
    parser.add_argument("--quiet", action="store_true", help="show no progress of training")
    return parser


def _names(given: list[str], *, option: str) -> list[str]:
    """Split at commas as well as blanks."""
    names = [name.strip() for text in given for name in text.split(",")]
    if "" in names:
        raise UserError(
            f"{option} {' '.join(given)}: an empty name in it; names stand between commas or blanks"
        )
    return names


def _show_plan(planned: list[Planned], todo: list[Planned]) -> None:
    for one in todo:
        print(f"{one.row}  seed {one.config.training.seed}  {one.config.training.minutes:g} minutes")
    minutes = sum(one.config.training.minutes for one in todo)
    print(
        f"{len(planned) - len(todo)} of {len(planned)} runs are recorded; {len(todo)} to make: {minutes:g} minutes"
    )


def _say(text: str) -> None:
    print(text, flush=True)


__all__ = ["parser", "run"]
