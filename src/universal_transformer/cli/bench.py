"""``ut bench``: measure this machine: what halting saves, and how fast the fixed depth is beside other libraries."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.cli.arguments import Parser, note, number, whole
from universal_transformer.errors import UserError, near

if TYPE_CHECKING:
    import argparse

CASES = {
    "halting": "what leaving out halted positions saves, inference and training",
    "train": "fixed depth, forward and backward, beside torch.nn, x-transformers and ALBERT",
    "decode": "greedy cached decoding, beside T5",
    "continuous": "decoding with halting: rows that never wait, beside rows in lock-step",
    "encoding": "encoding with halting: sequences that leave, beside padded batches",
    "sweep": "what halting saves against mean steps, and what a pass costs against length and depth",
    "startup": "how long until ut --help answers and the package is imported",
    "gpu": "all of it on a GPU, in bfloat16, the block compiled",
}
"""Case -> what it measures; the module of that name in the room `bench` has `run(settings)`."""
DRAWN = "sweep"
"""The case that --plots draws."""


def run(arguments: list[str]) -> int:
    """Run the named cases (by default all but gpu), print a table, write JSON if asked."""
    options = parser().parse(arguments)
    if options.read:
        return _show(options)
    _check(options)
    import torch

    from universal_transformer.bench.result import Settings, render, report

    before = torch.get_num_threads()
    if options.threads:
        torch.set_num_threads(options.threads)
    seconds = 0.05 if options.quick else options.seconds
    settings = Settings(seconds=seconds, quick=options.quick, threads=options.threads)
    measurements = []
    try:
        for name in options.cases or [case for case in CASES if case != "gpu"]:
            note(f"bench {name}: {CASES[name]}")
            measurements += import_module(f"universal_transformer.bench.{name}").run(settings)
        found = report(measurements, settings=settings)
    finally:
        torch.set_num_threads(before)
    # shown first: should the file fail, what took minutes is not lost
    if not (options.markdown or options.plots):
        print(render(measurements))
    _print_tables(found, options)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    _draw(found, options)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse, before anything is measured, what could not be measured, written or drawn."""
    for name in options.cases:
        if name not in CASES:
            raise UserError(f"no benchmark {name!r}{near(name, CASES)}; known are {', '.join(CASES)}")
    target = Path(options.json)
    if options.json and (target.is_dir() or not target.parent.is_dir()):
        what = "this is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise UserError(f"--json {target}: {what}; expected the name of a file to write")
    if options.plots and options.cases and DRAWN not in options.cases:
        raise UserError(
            f"--plots {options.plots}: the figures are of the case {DRAWN}, found {' '.join(options.cases)}; "
            f"name {DRAWN} too, or leave --plots out"
        )
    if options.plots and not Path(options.plots).is_dir():
        raise UserError(f"--plots {options.plots}: there is no such folder for figures")


def _show(options: argparse.Namespace) -> int:
    """Tables and figures of what was measured before."""
    from universal_transformer.explore.benchmarks import read_bench

    if options.cases or options.json:
        raise UserError("--read shows what was measured: it takes no cases and no --json")
    found = read_bench(Path(options.read))
    if not (options.markdown or options.plots):
        raise UserError("--read FILE: say what to make of it: --markdown, --plots FOLDER, or both")
    _print_tables(found, options)
    _draw(found, options)
    return 0


def _print_tables(found: dict[str, Any], options: argparse.Namespace) -> None:
    if options.markdown:
        from universal_transformer.bench.result import markdown

        print(markdown(found))


def _draw(found: dict[str, Any], options: argparse.Namespace) -> None:
    if options.plots:
        from universal_transformer.explore.benchmarks import draw_benchmarks

        for path in draw_benchmarks(found, Path(options.plots)):
            note(f"drawn: {path}")


def parser() -> Parser:
    """Return the parser of ``ut bench``."""
    parser = Parser(
        "bench",
        description="Measure this machine. Ratios are medians of sides run in turn; shares are of what could be saved. "
        f"Cases: {'; '.join(f'{name}: {about}' for name, about in CASES.items())}.",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what to measure (default: all but gpu)")
    parser.add_argument("--json", metavar="FILE", default="", help="also write everything as JSON")
    parser.add_argument("--markdown", action="store_true", help="print tables as the documentation has them")
    parser.add_argument("--plots", metavar="FOLDER", default="", help=f"draw the figures of the case {DRAWN}")
    parser.add_argument(
        "--read", metavar="FILE", default="", help="measure nothing: take what --json wrote earlier"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny shapes: shows that it runs, measures nothing"
    )
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
        help="threads of torch (default: as torch chooses)",
    )
    return parser
