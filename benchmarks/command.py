"""``ut bench``: measure on this machine what halting saves, and the fixed depth against other libraries."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.cli.arguments import Parser, check_writable, note, number, whole
from universal_transformer.errors import UserError, suggestion

if TYPE_CHECKING:
    import argparse

CASES = {
    "halting": "how much time it saves to leave out halted positions, in inference and in training",
    "train": "fixed depth, forward and backward pass, compared with torch.nn, x-transformers and ALBERT",
    "decode": "greedy decoding with a cache, compared with T5",
    "continuous": "decoding with halting: depth-continuous generation, compared with rows that wait for each other",
    "sweep": "what halting saves against mean steps, and the cost of a pass against length and depth",
    "positions": "memory and time of each of 1, 2 and 4 processes that share the positions of one sequence",
    "startup": "time of ut --help, and of importing the package",
    "gpu": "training, halting and decoding on a GPU in bfloat16, eager and compiled",
}
"""Case -> what it measures. The module of that name in `benchmarks` has a function `run(settings)`."""
DRAWN = "sweep"
"""The case whose figures --plots draws."""


def run(arguments: list[str]) -> int:
    """Run the named cases (by default all but gpu), print a table, and write JSON if --json is given."""
    options = parser().parse(arguments)
    if options.read:
        return _show(options)
    _check(options)
    import torch

    from benchmarks.result import Settings, render, report

    before = torch.get_num_threads()
    if options.threads:
        torch.set_num_threads(options.threads)
    seconds = 0.05 if options.quick else options.seconds
    settings = Settings(seconds=seconds, quick=options.quick, threads=options.threads)
    measurements = []
    try:
        for name in options.cases or [case for case in CASES if case != "gpu"]:
            note(f"bench {name}: {CASES[name]}")
            measurements += import_module(f"benchmarks.{name}").run(settings)
        results = report(measurements, settings=settings)
    finally:
        torch.set_num_threads(before)
    # printed first, so that the measurements are not lost if the file cannot be written
    if not (options.markdown or options.plots):
        print(render(measurements))
    _print_tables(results, options)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    _draw(results, options)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse, before any measurement, arguments that would fail after it."""
    for name in options.cases:
        if name not in CASES:
            raise UserError(f"no benchmark {name!r}{suggestion(name, CASES)}; known are {', '.join(CASES)}")
    if options.json:
        check_writable("--json", options.json)
    if options.plots and options.cases and DRAWN not in options.cases:
        raise UserError(
            f"--plots {options.plots}: the figures are of the case {DRAWN}, found {' '.join(options.cases)}; "
            f"name {DRAWN} too, or leave --plots out"
        )
    if options.plots and not Path(options.plots).is_dir():
        raise UserError(f"--plots {options.plots}: there is no such folder for figures")


def _show(options: argparse.Namespace) -> int:
    """Print tables and draw figures of earlier measurements."""
    from benchmarks.figures import read_bench

    if options.cases or options.json:
        raise UserError("--read shows earlier measurements: it takes no cases and no --json")
    results = read_bench(Path(options.read))
    if not (options.markdown or options.plots):
        raise UserError("--read FILE: give the output too: --markdown, --plots FOLDER, or both")
    _print_tables(results, options)
    _draw(results, options)
    return 0


def _print_tables(results: dict[str, Any], options: argparse.Namespace) -> None:
    if options.markdown:
        from benchmarks.result import markdown

        print(markdown(results))


def _draw(results: dict[str, Any], options: argparse.Namespace) -> None:
    if options.plots:
        from benchmarks.figures import draw_benchmarks

        for path in draw_benchmarks(results, Path(options.plots)):
            note(f"drawn: {path}")


def parser() -> Parser:
    """Return the parser of ``ut bench``."""
    parser = Parser(
        "bench",
        description="Measure this machine. A ratio is the median over turns, a share the ratio over its upper bound. "
        f"Cases: {'; '.join(f'{name}: {about}' for name, about in CASES.items())}.",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what to measure (default: all but gpu)")
    parser.add_argument("--json", metavar="FILE", default="", help="also write all measurements as JSON")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument("--plots", metavar="FOLDER", default="", help=f"draw the plots of the case {DRAWN}")
    parser.add_argument(
        "--read", metavar="FILE", default="", help="measure nothing: read the file that --json wrote earlier"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, which only show that the cases run")
    parser.add_argument(
        "--seconds",
        type=number(least=0.0, open_below=True),
        default=6.0,
        metavar="S",
        help="about how long each comparison runs (default: 6)",
    )
    parser.add_argument(
        "--threads",
        type=whole(1),
        default=0,
        metavar="N",
        help="threads of torch (default: the choice of torch)",
    )
    return parser
