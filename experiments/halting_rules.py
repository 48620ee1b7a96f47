"""Compare the rules of halting: error against mean steps, for each rule and each threshold.

    python experiments/halting_rules.py FOLDER [TASK ...]

Trains every rule on every task with `ut train`, runs each exit rule and threshold on the test set with `ut calibrate`,
adds a line to results/studies/halting_rules.jsonl for each run that has none, and writes
results/studies/halting_rules.md and one picture a task, docs/images/depth_TASK.svg. Where all lines are recorded, it
only writes these. Runs are in FOLDER; one that was stopped is continued. multi30k and babi need UT_DATA.

| task     | recipe                      | what is scored                                |
| -------- | --------------------------- | --------------------------------------------- |
| stories  | stories                     | answers, by the facts that they need          |
| sudoku   | sudoku-4                    | boards of 4 x 4, all cells right              |
| addition | addition-distance-positions | sums of 400 symbols, all digits right         |
| multi30k | multi30k                    | chrF of translations from English into German |
| babi     | babi-10k-joint              | answers to all 20 tasks, two blocks a step    |

On stories and sudoku all rules begin anew. On the other tasks they begin from the weights of the fixed depth, with
fewer updates (addition 1,000, babi 1,500, multi30k 400) and the loss after each step (ponder: without it). There
are three seeds of all tasks but babi, whose fixed depth takes 246 minutes; the table says how many are recorded.

| rule           | in the table                      | trained with                                                 |
| -------------- | --------------------------------- | ------------------------------------------------------------ |
| fixed          | fixed depth                       | a fixed depth                                                |
| every step     | fixed depth, loss after each step | a fixed depth, and the loss after each step                  |
| act            | ACT                               | adaptive computation time, the cap of the fixed depth        |
| act 2x         | ACT, twice the cap                | the same with twice the cap                                  |
| ponder         | PonderNet                         | PonderNet, the cap of the fixed depth; of addition and       |
|                |                                   | multi30k in the decoder alone                                |
| stick-breaking | stick-breaking                    | the stick-breaking rule, the cap of the fixed depth          |

With two blocks a step (babi), stick-breaking is not defined. The recipe of Sudoku has the loss after each step. It
stays in act, act 2x and stick-breaking there.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from study import PROJECT, Study, arguments, train_run, ut

from universal_transformer.explore.canvas import INK, MUTED, canvas, clean, svg
from universal_transformer.files import write_bytes
from universal_transformer.runs.folder import METRICS
from universal_transformer.runs.journal import read_metrics

IMAGES = PROJECT / "docs" / "images"

SHAPE = (
    "--data.repeat 16:3,17:2,19:2 --model.step.blocks 2 --model.num-heads 8 --model.step.dropout 0.02 "
    "--model.coordinates.position learned --model.coordinates.step none --training.minutes None"
)
"""What all models of bAbI have in common."""
RANDOM = "--data.similar-numbers 0"
"""Additions of random numbers alone, as they were recorded."""
COSINE = "--training.schedule cosine --training.ema-decay None"
"""Schedule of the recorded runs, which some recipes no longer have."""


@dataclass(frozen=True)
class Comparison:
    """A task on which the rules are compared."""

    recipe: str
    """Recipe with its budget."""
    calibration: str
    """Options of `ut calibrate`."""
    steps: int
    """Steps of the fixed depth."""
    seeds: tuple[int, ...] = (0, 1, 2)
    tuned: str = ""
    """Recipe of the rules that begin from the weights of the fixed depth; empty: all begin anew."""
    left_out: tuple[str, ...] = ()
    """Rules that the model does not serve."""
    ponder: str = "both"
    """Side that halts with the rule ponder, which an encoder without an output of its own cannot have."""
    error: str = "error, %"
    """What 100 times one minus the score is called."""


TASKS = {
    "stories": Comparison(
        f"stories {COSINE} --training.minutes None --training.max-updates 1500",
        "--split test --tolerance 0.01",
        steps=6,
    ),
    "sudoku": Comparison("sudoku-4", "--split test --limit 500 --tolerance 0.01", steps=16),
    "addition": Comparison(
        f"addition-distance-positions {RANDOM} {COSINE}",
        "--split 'length 400' --tolerance 0.05 --batch-tokens 65536",  # 100 examples are too few for 0.01
        steps=3,
        tuned=f"addition-distance-positions {RANDOM} {COSINE} --training.max-updates 1000 "
        "--training.learning-rate 1e-3 --training.halting-delay 0 --training.step-loss mean",
        ponder="decoder",
    ),
    "multi30k": Comparison(
        "multi30k --training.minutes None --training.max-updates 1400 --training.precision float32",
        "--split test --limit 200 --tolerance 0.05",
        steps=6,
        tuned="multi30k --training.minutes None --training.max-updates 400 --training.precision float32 "
        "--training.learning-rate 5e-4 --training.halting-delay 0 --training.step-loss mean",
        ponder="decoder",
        error="100 - chrF",
    ),
    "babi": Comparison(
        # the second of the two commands in notebook/paper_tables.md; the first makes runs/four
        f"babi-10k-joint --from runs/four {SHAPE} --training.ponder-weight 0 --training.max-updates 17500 "
        "--training.learning-rate 1e-3",
        # no divisor of the test set: every fifth question would be the first of its story, which is the easiest
        "--split test --limit 4003 --tolerance 0.01",
        steps=4,
        seeds=(0,),
        tuned=f"babi-10k-joint {SHAPE} --training.max-updates 1500 --training.learning-rate 5e-4 "
        "--training.halting-delay 0 --training.step-loss mean",
        left_out=("stick-breaking",),
    ),
}
DRAWN = ("stories", "sudoku", "babi")
"""Tasks with a picture."""
FIXED = "--model.halting.side none --training.halting-delay 0"
HALTING = "--model.halting.side both"
NAMES = {
    "stories": "stories",
    "sudoku": "Sudoku 4 × 4",
    "addition": "addition, 400 symbols",
    "multi30k": "Multi30k",
    "babi": "bAbI 10K joint",
    "fixed": "fixed depth",
    "every step": "fixed depth, loss after each step",
    "act": "ACT",
    "act 2x": "ACT, twice the cap",
    "ponder": "PonderNet",
    "stick-breaking": "stick-breaking",
}
"""What tasks and ways of training are called in the table and in the pictures, as in docs/depth.md."""
EXITS = {
    "max_steps": ("max_steps", "#0072B2"),
    "halting_threshold": ("threshold", "#E69F00"),
    "state_change": ("state_change", "#D55E00"),
    "output_change": ("output_change", "#CC79A7"),
    "confidence": ("confidence", "#56B4E9"),
}
"""What each rule that ends the depth is called, and its colour in all pictures."""
RULES = {
    "fixed": f"{FIXED} --training.step-loss last",
    "every step": f"{FIXED} --training.step-loss mean",
    "act": HALTING,
    "act 2x": HALTING,
    "ponder": f"{HALTING} --model.halting.rule ponder --training.halting-delay 0 --training.step-loss last",
    "stick-breaking": f"{HALTING} --model.halting.rule stick_breaking --training.halting-delay 0",
}
HIGHEST = 40
"""Per cent of errors at which a panel ends: what stops too early is of no interest."""
TOLERANCE = 0.01
"""Share of right answers that the setting in the table may lose."""


def measure(task: str, rule: str, *, seed: int, folder: Path) -> dict[str, Any]:
    """Train, or continue, and calibrate; return the line of results."""
    compared = TASKS[task]
    cap = ["--model.max-steps", str(2 * compared.steps if rule == "act 2x" else compared.steps)]
    recipe = shlex.split(compared.recipe)
    if compared.tuned and rule != "fixed":
        recipe = [*shlex.split(compared.tuned), "--from", str(folder.with_name(f"{task}-fixed-{seed}"))]
    side = ["--model.halting.side", compared.ponder] if rule == "ponder" and compared.ponder != "both" else []
    options = [*recipe, *RULES[rule].split(), *side, *cap, "--training.seed", str(seed)]
    train_run(folder, *options, "--quiet")
    calibration = folder / "calibration.json"
    if not calibration.exists():  # 1: no setting is within the tolerance; the curves are there
        ut("calibrate", str(folder), *shlex.split(compared.calibration), "--json", accepted=(0, 1))
    found = json.loads(calibration.read_text())
    begun = next(line for line in read_metrics(folder / METRICS) if line["event"] == "start")
    return {
        "task": task,
        "rule": rule,
        "seed": seed,
        "command": " ".join(["ut", "train", *options]),
        "config": begun["config"],
        "commit": begun["commit"],
        "split": found["split"],
        "count": found["count"],
        "trained": {"steps": found["trained"]["mean_steps"], "score": found["trained"]["score"]},
        "curves": {
            rule: [
                {
                    "value": point["setting"]["value"],
                    "steps": point["cost"]["mean_steps"],
                    "score": point["cost"]["score"],
                }
                for point in points
            ]
            for rule, points in groupby(found["points"], key=lambda point: point["setting"]["rule"])
        },
    }


def cheapest(line: dict[str, Any], *, exits: Iterable[str] = EXITS) -> tuple[float, str]:
    """Return the fewest mean steps at which the score falls by at most `TOLERANCE`, and the exit that reaches them."""
    least = line["trained"]["score"] - TOLERANCE
    found = [(line["trained"]["steps"], "as trained")]
    for name in exits:
        title, _ = EXITS[name]
        points = line["curves"].get(name, [])
        found += [(point["steps"], f"{title} {point['value']:g}") for point in points if point["score"] >= least]
    return min(found)


def spread(values: list[float], *, form: str) -> str:
    mean = format(statistics.mean(values), form)
    return mean if len(values) == 1 else f"{mean} ± {format(statistics.stdev(values), form)}"


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    """All runs as Markdown, the mean and the standard deviation over seeds."""
    yield "# Error and mean steps of each rule\n"
    yield "Made by `python experiments/halting_rules.py FOLDER [TASK ...]`, which says how each row is trained. Exits"
    yield "and thresholds are chosen and measured on the same test examples. The second table of a task has the fewest"
    yield f"steps within {TOLERANCE:.0%} for each exit alone; where no setting of it is within, those as trained."
    for task in TASKS:
        rows = {rule: [line for line in lines if (line["task"], line["rule"]) == (task, rule)] for rule in RULES}
        if not any(rows.values()):
            continue
        yield f"\n## {NAMES[task]}\n"
        fewest = f"fewest steps within {TOLERANCE:.0%}"
        yield f"| trained with | seeds | {TASKS[task].error} | steps | {fewest} | reached by (seed 0) |"
        yield "|---|---|---|---|---|---|"
        for rule, own in rows.items():
            if own:
                errors = spread([100 * (1 - line["trained"]["score"]) for line in own], form=".2f")
                steps = spread([line["trained"]["steps"] for line in own], form=".2f")
                fewest = spread([cheapest(line)[0] for line in own], form=".2f")
                yield f"| {NAMES[rule]} | {len(own)} | {errors} | {steps} | {fewest} | {cheapest(own[0])[1]} |"
        yield f"\n| trained with | {' | '.join(title for title, _ in EXITS.values())} |\n|---{'|---' * len(EXITS)}|"
        for rule, own in rows.items():
            if own:
                alone = [
                    spread([cheapest(line, exits=[name])[0] for line in own], form=".2f")
                    if name in own[0]["curves"]
                    else ""
                    for name in EXITS
                ]
                yield f"| {NAMES[rule]} | {' | '.join(alone)} |"


def mean_curves(lines: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Mean steps and error of each exit at each of its settings, averaged over the lines, which are seeds."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for name in EXITS.keys() & lines[0]["curves"]:
        settings = zip(*(line["curves"][name] for line in lines), strict=True)
        curves[name] = [
            (statistics.mean(p["steps"] for p in points), 100 * (1 - statistics.mean(p["score"] for p in points)))
            for points in settings
        ]
    return curves


def picture(task: str, lines: list[dict[str, Any]]) -> None:
    """Draw error against mean steps: a panel for each way of training, a line for each exit rule."""
    own = {rule: [line for line in lines if (line["task"], line["rule"]) == (task, rule)] for rule in RULES}
    own = {rule: found for rule, found in own.items() if found}
    columns = min(3, len(own))
    rows = -(-len(own) // columns)
    figure, axes = canvas(
        width=max(8.0, 3.4 * columns),
        height=2.7 * rows + 0.3,
        rows=rows,
        columns=columns,
        title=f"Error against mean steps: {NAMES[task]}",
        subtitle="A panel for each way of training; a line for each exit rule, means over seeds; diamond: as trained",
    )
    handles: dict[str, Any] = {}
    for ax, (rule, found) in zip(axes, own.items(), strict=False):
        for name, points in mean_curves(found).items():
            title, colour = EXITS[name]
            (drawn,) = ax.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, marker=".", markersize=5)
            handles.setdefault(title, drawn)
        steps, score = (statistics.mean(line["trained"][field] for line in found) for field in ("steps", "score"))
        ax.plot(steps, 100 * (1 - score), "D", color=INK, markersize=5)
        ax.set_title(NAMES[rule], fontsize=10, color=INK)
        ax.set_xlim(0, 1.04 * max(line.get_xdata().max() for line in ax.get_lines()[:-1]))
        ax.set_ylim(-1, HIGHEST)
        ax.set_xlabel("mean steps", color=MUTED)
        ax.set_ylabel(TASKS[task].error, color=MUTED)
        clean(ax, grid="y")
    for ax in axes[len(own) :]:
        ax.set_visible(False)
    titles = [title for title, _ in EXITS.values() if title in handles]
    shown = [handles[title] for title in titles]
    figure.legend(shown, titles, loc="outside lower center", ncols=len(titles), frameon=False, fontsize=9)
    write_bytes(IMAGES / f"depth_{task}.svg", svg(figure))


def report() -> None:
    """Make the page and the pictures from the recorded lines."""
    STUDY.render()
    for task in DRAWN:
        picture(task, STUDY.lines())


STUDY = Study(__file__, key=("seed", "task", "rule"), page=page)


if __name__ == "__main__":
    folder, *tasks = arguments(__doc__, known=TASKS)
    report()
    cases = [(seed, task, rule) for task in tasks or TASKS for rule in RULES for seed in TASKS[task].seeds]
    cases = [case for case in cases if case[2] not in TASKS[case[1]].left_out]
    for seed, task, rule in STUDY.missing(sorted(cases, key=lambda case: case[0])):
        STUDY.add(measure(task, rule, seed=seed, folder=Path(folder) / f"{task}-{rule.replace(' ', '-')}-{seed}"))
        report()
