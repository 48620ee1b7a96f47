"""Measure how much time an exit by confidence saves, beside the steps that it saves.

    python experiments/exit_seconds.py FOLDER

Takes each model of `MODELS`, trained in FOLDER or copied from the package, and chooses its exit on validation data,
twice and on one thread of a CPU: `ut calibrate RUN --rule confidence --tolerance 1%`. Adds the lines that are missing
to results/studies/exit_seconds.jsonl and writes results/studies/exit_seconds.md. Nothing else should run on the
machine. bAbI needs UT_DATA.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from universal_transformer.pretrained_models import find
from universal_transformer.training.provenance import code_in_use, show_commit

RESULTS = Path(__file__).parents[1] / "results" / "studies" / "exit_seconds.jsonl"
UT = Path(sys.executable).with_name("ut")
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


def ut(*arguments: str) -> str:
    """Run a command on one thread and return what it prints; end with its error if it fails."""
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([str(UT), *arguments], check=False, capture_output=True, text=True, env=one_thread)
    if run.returncode:
        sys.exit(f"ut {' '.join(arguments)}: {run.stderr.strip()[-500:]}")
    return run.stdout


def prepared(name: str, *, folder: Path) -> Path:
    """Return the run of a model; train it, or copy it from the package, if FOLDER does not have it."""
    model, run = MODELS[name], folder / name.replace(" ", "").replace("×", "x").lower()
    if model.package:
        shutil.copytree(find(model.package), run, dirs_exist_ok=True)
    elif (run / "checkpoints").exists():
        ut("train", "--resume", str(run), "--quiet")
    else:
        ut("train", *shlex.split(model.train), "--run", str(run), "--quiet")
    return run


def measure(name: str, *, number: int, run: Path) -> dict[str, Any]:
    """Choose the exit; return its steps and its time beside those of all steps."""
    options = f"--rule confidence --tolerance 1% {MODELS[name].calibrate}"
    found = json.loads(ut("calibrate", str(run), *shlex.split(options), "--json"))
    chosen = found["chosen"]
    (curve,) = found["curves"]
    (cost,) = (point["cost"] for point in curve["points"] if point["value"] == chosen["value"])
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


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
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


def main(folder: Path) -> None:
    done = {(line["model"], line["measurement"]) for line in recorded()}
    runs = {name: prepared(name, folder=folder) for name in MODELS}  # all trainings are before the first measurement
    for number in range(MEASUREMENTS):
        for name, run in runs.items():
            if (name, number) not in done:
                line = measure(name, number=number, run=run)
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                text = "".join(f"{row}\n" for row in table(recorded()))
                RESULTS.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
