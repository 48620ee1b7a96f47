"""Compare learning rate schedules and averages of weights in trainings of the length of a recipe.

    python experiments/learning_rate_schedules.py FOLDER [TASK ...]

Trains each task with each schedule (2 to 16 minutes of one core), at a fixed depth or with ACT, and writes
results/studies/learning_rate_schedules.jsonl and results/studies/learning_rate_schedules.md. Runs are in FOLDER; one
that was stopped is continued, and a line that exists is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from study import Study, arguments, trained

from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import load_pretrained
from universal_transformer.training.config import RunConfig
from universal_transformer.training.provenance import code_in_use
from universal_transformer.typed import replaced

SEEDS = (0, 1)
COSINE, CONSTANT = {"training.schedule": "cosine"}, {"training.schedule": "constant"}
MEAN = {"training.ema_decay": 0.999}
HALTING = {"model.halting.side": "both"}
TWO: dict[str, dict[str, Any]] = {"cosine to 0": COSINE, "constant, running mean .999": {**CONSTANT, **MEAN}}
ALL: dict[str, dict[str, Any]] = {
    "cosine to 0": COSINE,
    "cosine to 0, running mean .999": {**COSINE, **MEAN},
    "cosine to 0, mean of the last 3 validations": {**COSINE, "training.average_checkpoints": 3},
    "constant": CONSTANT,
    "constant, running mean .999": {**CONSTANT, **MEAN},
    "constant, mean of the last 3 validations": {**CONSTANT, "training.average_checkpoints": 3},
    "ACT, cosine to 0": {**HALTING, **COSINE},
    "ACT, constant, running mean .999": {**HALTING, **CONSTANT, **MEAN},
}


class Comparison(NamedTuple):
    """A task of the comparison: its recipe, the updates of a run, the variants, and the test set that is scored."""

    recipe: str
    updates: int
    variants: dict[str, dict[str, Any]]
    test: str = "test"
    data: Mapping[str, Any] = MappingProxyType({})


TASKS = {
    "stories": Comparison("stories", 1200, ALL),
    "bAbI 1K joint": Comparison("babi-1k-joint", 3300, TWO),
    "sudoku 6 × 6": Comparison("sudoku-6", 1500, TWO),
    "multiplication, 400 digits": Comparison("multiplication-distance-positions", 1500, TWO, "length 400"),
    "multiplication, 1,000 digits": Comparison("multiplication-distance-positions", 4500, TWO, "length 1000"),
    "addition, 1,000 symbols": Comparison(
        "addition-distance-positions", 4500, TWO, "length 1000", {"data.similar_numbers": 0.0}
    ),
    "prefix parity, 1,000 symbols": Comparison("prefix-parity-distance-positions", 4000, TWO, "length 1000"),
    "copy, 2,000 digits": Comparison("copy-distance-positions", 4000, TWO, "length 2000"),
}


def configuration(task: str, variant: str, *, seed: int) -> RunConfig:
    recipe, updates, variants, _, data = TASKS[task]
    common = {
        "model.halting.side": "none",
        "training.ema_decay": None,
        "training.minutes": None,
        "training.max_updates": updates,
        "training.validate_every": updates // 8,
        "training.threads": 1,
        "training.seed": seed,
    }
    return replaced(replaced(RECIPES[recipe](), {**common, **data}), variants[variant])


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    yield "# Schedules and averages of weights\n"
    yield "`python experiments/learning_rate_schedules.py FOLDER`: answers that are wrong, in per cent,"
    yield "one figure for each of seeds 0 and 1. The depth is fixed where ACT is not named. The weights are the best on"
    yield "validation of the best of all validations, the last ones, and the average, where there is one.\n"
    yield "| task (updates) | schedule | test error, % | chosen weights |\n|---|---|---|---|"
    for task, comparison in TASKS.items():
        for variant in comparison.variants:
            own = [line for line in lines if (line["task"], line["variant"]) == (task, variant)]
            errors = ", ".join(f"{line['error']:.2f}" for line in own) or "not measured"
            chosen = ", ".join(line["chosen"] for line in own)
            yield f"| {task} ({comparison.updates:,}) | {variant} | {errors} | {chosen} |"


def wrong(metrics: Mapping[str, float]) -> float:
    """Return the share of wrong answers, in per cent."""
    return metrics["error"] if "error" in metrics else 100 * (1 - metrics["sequence_accuracy"])


def measure(task: str, variant: str, *, seed: int, folder: Path) -> dict[str, Any]:
    comparison = TASKS[task]
    name = f"{comparison.recipe}-{comparison.updates}-{list(comparison.variants).index(variant)}-{seed}"
    config, run = configuration(task, variant, seed=seed), folder / name
    loaded = config.data.load()
    result = trained(config, run, task=loaded)
    (total,) = evaluate(load_pretrained(run / "model"), loaded, Selection(split=comparison.test)).totals
    return {
        "task": task,
        "variant": variant,
        "seed": seed,
        "updates": result.updates,
        "config": config.digest(),
        "commit": code_in_use().commit,
        "chosen": result.chosen,
        "error": wrong(total.metrics),
        "count": total.count,
    }


STUDY = Study(__file__, key=("task", "seed", "variant"), page=page)


if __name__ == "__main__":
    folder, *tasks = arguments(__doc__, known=TASKS)
    cases = ((task, seed, variant) for task in tasks or TASKS for seed in SEEDS for variant in TASKS[task].variants)
    for task, seed, variant in STUDY.missing(cases):
        STUDY.add(measure(task, variant, seed=seed, folder=Path(folder)))
