"""The harness of the studies: a case without a record is measured, its line appended, and the page made again.

A study is a file of this folder: its docstring says what is asked and how it is called, `page` renders its lines, and
`results/studies` has both, under the name of the file.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from universal_transformer.runs.opened import Run
    from universal_transformer.runs.trainer import TrainingResult
    from universal_transformer.tasks.task import Task
    from universal_transformer.training.run_config import RunConfig

PROJECT = Path(__file__).parents[1]
STUDIES = PROJECT / "results" / "studies"
UT = Path(sys.executable).with_name("ut")
sys.path.append(str(PROJECT))  # `paper` and `benchmarks` stand there

Line = dict[str, Any]
Page = Callable[[list[Line]], Iterable[str]]
"""From the lines of a study to the lines of its page."""


class Study:
    """The lines of a study, one for each case: the values of the fields `key`."""

    def __init__(self, script: str, *, key: Sequence[str], page: Page) -> None:
        self.path, self.key, self.page = STUDIES / f"{Path(script).stem}.jsonl", key, page

    def lines(self) -> list[Line]:
        """All recorded lines."""
        return read_lines(self.path) if self.path.exists() else []

    def missing(self, cases: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield the cases without a line, which is looked for when its turn comes."""
        for case in cases:
            if case not in {self.case(line) for line in self.lines()}:
                yield case

    def case(self, line: Line) -> tuple[Any, ...]:
        """The case of a line."""
        return tuple(line[field] for field in self.key)

    def add(self, line: Line) -> None:
        """Record a line, in place of one of the same case, and make the page."""
        kept = [old for old in self.lines() if self.case(old) != self.case(line)]
        write_page(self.path, map(json.dumps, [*kept, line]))
        print(json.dumps(line), flush=True)
        self.render()

    def render(self) -> None:
        """Make the page from the recorded lines."""
        write_page(self.path.with_suffix(".md"), self.page(self.lines()))


def read_lines(path: Path) -> list[Line]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def record(file: Path | None, run: Run, figures: Line, **fields: Any) -> None:
    """Print the figures that were measured of a run; a file also has how both were made, and other `fields`."""
    from universal_transformer.files import write_json
    from universal_transformer.runs.folder import METRICS
    from universal_transformer.runs.journal import read_metrics
    from universal_transformer.training.provenance import code_in_use, hardware

    for name, value in figures.items():
        print(f"{name.replace('_', ' '):45} {format(value, '.3f') if isinstance(value, float) else value}")
    if file is None:
        return
    events, code = {line["event"]: line for line in read_metrics(run.folder / METRICS)}, code_in_use()
    made = {
        "command": shlex.join(["python", f"experiments/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "recipe": run.config.recipe,
        "digest": run.config.digest(),
        "started": {name: value for name, value in events.get("start", {}).items() if name != "folder"},
        "ended": events.get("end", {}),
        "hardware": hardware(threads=0, device="cpu"),
        "versions": code.versions,
        "code": {"commit": code.commit, "clean": code.clean},
    }
    write_json(file, {**made, **fields, "figures": figures})


def write_page(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def arguments(doc: str, *, least: int = 1, most: int = 99, known: Iterable[str] = ()) -> list[str]:
    """Return the arguments of the script; end with its docstring if their number is wrong, or one is unknown.

    With `known`, arguments after the first `least` are names of these.
    """
    given, names = sys.argv[1:], list(known)
    wrong = names and set(given[least:]) - set(names)
    if not least <= len(given) <= most or wrong or any(text.startswith("-") for text in given[:least]):
        sys.exit(f"{doc}\nNames: {', '.join(names)}" if names else doc)
    return given


def ut(*options: str, accepted: Sequence[int] = (0,)) -> str:
    """Run a command on one thread and return what it prints; end if its exit status is not accepted."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(UT), *options], check=False, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode not in accepted:
        sys.exit(f"ut {' '.join(options)}: ended with {done.returncode}")
    return done.stdout


def train_run(run: Path, *options: str) -> None:
    """Train with a command, or continue."""
    begun = (run / "config.json").exists()
    print(ut("train", *(["--resume", str(run)] if begun else [*options, "--run", str(run)])), end="", flush=True)


def trained(config: RunConfig, folder: Path, *, task: Task) -> TrainingResult:
    """Train a configuration in this process, or continue; end if it is interrupted."""
    from universal_transformer.runs.trainer import train

    result = train(config, folder, task=task, resume=folder.exists(), quiet=True)
    if result.stopped == "interrupted":
        raise SystemExit(130)
    return result
