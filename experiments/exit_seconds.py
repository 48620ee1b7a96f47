"""Measure how much time an exit by confidence saves, beside the steps that it saves.

    python experiments/exit_seconds.py FOLDER

Takes each model of `MODELS`, trained in FOLDER or copied from the package, and chooses its exit on validation data,
twice and on one thread of a CPU: `ut calibrate RUN --rule confidence --tolerance 1%`. Adds the lines that are missing
to results/studies/exit_seconds.jsonl and writes results/studies/exit_seconds.md. Nothing else should run on the
machine. bAbI needs UT_DATA.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import Study, arguments, train_run, ut

from universal_transformer.pretrained_models import find
from universal_transformer.training.provenance import code_in_use, show_commit

FIXED = "--model.halting.side none --training.halting-delay 0 --training.step-loss mean"


@dataclass(frozen=True)
class Model:
    """A model of fixed depth, and the validation data on which its exit is chosen."""

    calibrate: str
    """Options of `ut calibrate`."""
    train: str = ""
    """Arguments of `ut train`; empty: the model is in the package."""
    package: str = ""
    """Name of the model in the package."""

    @property
    def origin(self) -> str:
        return f"`ut train {self.train}`" if self.train else f"`{self.package}` of the package"


MODELS = {
    "stories": Model(
        "--validation-size 1200",
        train=f"stories {FIXED} --model.max-steps 6 --training.minutes None --training.max-updates 1500",
    ),
    "Sudoku 4 × 4": Model("--validation-size 500", train=f"sudoku-4 {FIXED} --model.max-steps 16"),
    "Sudoku 6 × 6": Model("--validation-size 500", package="sudoku"),
    "bAbI 10K joint": Model("--limit 4000", package="babi"),
}
MEASUREMENTS = 2


def prepared(name: str, *, folder: Path) -> Path:
    """Return the run of a model; train it, or copy it from the package, if FOLDER does not have it."""
    model, run = MODELS[name], folder / name.replace(" ", "").replace("×", "x").lower()
    if model.package:
        shutil.copytree(find(model.package), run, dirs_exist_ok=True)
    else:
        train_run(run, *shlex.split(model.train), "--quiet")
    return run


def measure(name: str, *, number: int, run: Path) -> dict[str, Any]:
    """Choose the exit; return its steps and its time beside those of all steps."""
    options = f"--rule confidence --tolerance 1% {MODELS[name].calibrate}"
    found = json.loads(ut("calibrate", str(run), *shlex.split(options), "--json"))
    chosen = found["chosen"]
    (cost,) = (point["cost"] for point in found["points"] if point["setting"] == chosen)
    code = code_in_use()
    return {
        "model": name,
        "measurement": number,
        "origin": MODELS[name].origin,
        "calibrate": f"ut calibrate RUN {options}",
        "commit": code.commit,
        "clean": code.clean,
        "weights": found["weights"],
        "count": found["count"],
        "value": chosen["value"],
        "trained": {field: found["trained"][field] for field in ("mean_steps", "seconds", "score")},
        "exit": {field: cost[field] for field in ("mean_steps", "seconds", "score")},
    }


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    """All measurements as Markdown; two figures in a cell are two measurements."""
    yield "# Time that an exit by confidence saves\n"
    yield "`python experiments/exit_seconds.py FOLDER`: milliseconds for an example, on one thread of a CPU without"
    yield "other work. Two figures are two measurements. The exit loses at most 1 % of the answers with 95 %"
    yield "confidence, and was chosen on the validation examples that are timed.\n"
    yield "| model | origin | examples | exit | steps | ms, all steps | ms, exit | share of the time | commit |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in MODELS:
        own = [line for line in lines if line["model"] == name]
        if not own:
            continue
        first = own[0]
        every, stopped = ([1000 * line[side]["seconds"] for line in own] for side in ("trained", "exit"))
        cells = [
            name,
            first["origin"],
            f"{first['count']:,}",
            f"`confidence:{first['value']:g}`",
            f"{first['trained']['mean_steps']:.2f} → {first['exit']['mean_steps']:.2f}",
            *(", ".join(format(value, ".3f") for value in values) for values in (every, stopped)),
            ", ".join(f"{b / a:.2f}" for a, b in zip(every, stopped, strict=True)),
            show_commit(first["commit"], clean=first["clean"]),
        ]
        yield f"| {' | '.join(cells)} |"


STUDY = Study(__file__, key=("measurement", "model"), page=page)


if __name__ == "__main__":
    (folder,) = arguments(__doc__, most=1)
    # all trainings are before the first measurement
    runs = {name: prepared(name, folder=Path(folder)) for name in MODELS}
    for number, name in STUDY.missing((number, name) for number in range(MEASUREMENTS) for name in MODELS):
        STUDY.add(measure(name, number=number, run=runs[name]))
