"""``ut bench``: measure on this machine what halting saves, and the fixed depth against other libraries."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

from universal_transformer.cli.output import check_writable, note
from universal_transformer.cli.parser import OptionForm, Place
from universal_transformer.cli.shared_options import File, Folder, MoreThanZero
from universal_transformer.errors import UserError, suggestion
from universal_transformer.typed import Positive

CASES = {
    "halting": "how much time it saves to leave out halted positions, in inference and in training",
    "train": "fixed depth, forward and backward pass, compared with torch.nn, x-transformers and ALBERT",
    "decode": "greedy and beam search with a cache, compared with T5",
    "hugging_face": "decoding with halting by generate() of transformers: with our cache, with its own, and by ours",
    "continuous": "decoding with halting: depth-continuous generation, compared with rows that wait for each other",
    "sweep": "what halting saves against mean steps",
    "positions": "memory and time of each of 1, 2 and 4 processes that share the positions of one sequence",
    "startup": "time of ut --help, and of importing the package",
    "gpu": "training, halting and decoding on a GPU in bfloat16, eager and compiled",
}
"""Case -> what it measures. The module of that name in `benchmarks` has a function `run(settings)`."""
DRAWN = "sweep"
"""The case whose figure --plots draws."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure this machine. A ratio is the median over turns, a share the ratio over its upper bound."""

    cases: Annotated[tuple[str, ...], OptionForm("CASE", place=Place.WORD)] = ()
    """What to measure (default: all but gpu): halting, train, decode, hugging_face, continuous, sweep, positions,
    startup, gpu."""
    json: File = ""
    """Also write all measurements as JSON."""
    markdown: bool = False
    """Print Markdown tables instead of plain ones."""
    plots: Folder = ""
    """Draw the figure of the case sweep."""
    quick: bool = False
    """Tiny sizes, which only show that the cases run."""
    seconds: MoreThanZero = 6.0
    """About how long each comparison runs."""
    threads: Positive | None = None
    """Threads of torch (default: the choice of torch)."""

    def __call__(self) -> int:
        """Run the named cases (by default all but gpu), print a table, and write JSON if --json is given."""
        self._check()
        import torch

        from benchmarks.result import Settings, markdown, render, report
        from benchmarks.sweep import draw_saving

        before = torch.get_num_threads()
        if self.threads:
            torch.set_num_threads(self.threads)
        seconds = 0.05 if self.quick else self.seconds
        settings = Settings(seconds=seconds, quick=self.quick, threads=self.threads)
        measurements = []
        try:
            for name in self.cases or [case for case in CASES if case != "gpu"]:
                note(f"bench {name}: {CASES[name]}")
                found = import_module(f"benchmarks.{name}").run(settings)
                measurements += [replace(measurement, case=name) for measurement in found]
            results = report(measurements, settings=settings)
        finally:
            torch.set_num_threads(before)
        # printed first, so that the measurements are not lost if the file cannot be written
        print(markdown(results) if self.markdown else render(measurements))
        if self.json:
            Path(self.json).write_text(json.dumps(results, indent=1) + "\n")
        if self.plots:
            note(f"drawn: {draw_saving(results, Path(self.plots))}")
        return 0

    def _check(self) -> None:
        """Refuse, before any measurement, arguments that would fail after it."""
        for name in self.cases:
            if name not in CASES:
                raise UserError(f"no benchmark {name!r}{suggestion(name, CASES)}; known are {', '.join(CASES)}")
        if self.json:
            check_writable("--json", self.json)
        if self.plots and self.cases and DRAWN not in self.cases:
            raise UserError(
                f"--plots {self.plots}: the figure is of the case {DRAWN}, found {' '.join(self.cases)}; "
                f"name {DRAWN} too, or leave --plots out"
            )
        if self.plots and not Path(self.plots).is_dir():
            raise UserError(f"--plots {self.plots}: there is no such folder for figures")
