"""``ut bench``: measure on this machine what halting saves, and the fixed depth against other libraries."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import Parser, check_writable, note, number, whole
from universal_transformer.errors import UserError, suggestion

if TYPE_CHECKING:
    import argparse

CASES = {
    "halting": "how much time it saves to leave out halted positions, in inference and in training",
    "train": "fixed depth, forward and backward pass, compared with torch.nn, x-transformers and ALBERT",
    "decode": "greedy decoding with a cache, compared with T5",
    "continuous": "decoding with halting: depth-continuous generation, compared with rows that wait for each other",
    "sweep": "what halting saves against mean steps",
    "positions": "memory and time of each of 1, 2 and 4 processes that share the positions of one sequence",
    "startup": "time of ut --help, and of importing the package",
    "gpu": "training, halting and decoding on a GPU in bfloat16, eager and compiled",
}
"""Case -> what it measures. The module of that name in `benchmarks` has a function `run(settings)`."""
DRAWN = "sweep"
"""The case whose figure --plots draws."""


def run(arguments: list[str]) -> int:
    """Run the named cases (by default all but gpu), print a table, and write JSON if --json is given."""
    options = parser().parse(arguments)
    _check(options)
    import torch

    from benchmarks.figures import draw_saving
    from benchmarks.result import Settings, markdown, render, report

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
    print(markdown(results) if options.markdown else render(measurements))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    if options.plots:
        note(f"drawn: {draw_saving(results, Path(options.plots))}")
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
            f"--plots {options.plots}: the figure is of the case {DRAWN}, found {' '.join(options.cases)}; "
            f"name {DRAWN} too, or leave --plots out"
        )
    if options.plots and not Path(options.plots).is_dir():
        raise UserError(f"--plots {options.plots}: there is no such folder for figures")


def parser() -> Parser:
    """Return the parser of ``ut bench``."""
    parser = Parser(
        "bench",
        description="Measure this machine. A ratio is the median over turns, a share the ratio over its upper bound. "
        f"Cases: {'; '.join(f'{name}: {about}' for name, about in CASES.items())}.",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what to measure (default: all but gpu)")
    parser.add_argument("--json", metavar="FILE", default="", help="also write all measurements as JSON")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables instead of plain ones")
    parser.add_argument("--plots", metavar="FOLDER", default="", help=f"draw the figure of the case {DRAWN}")
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
