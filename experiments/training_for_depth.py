"""Compare ways of training for depth: small models, few updates, the same number of updates for each.

    python experiments/training_for_depth.py FOLDER [SEED ...]

Trains every variant on generated stories of one to three facts, then the second stage of halting on some of them, with
seeds 0 and 1 by default. Adds a line to results/studies/training_for_depth.jsonl for each run that has none, and writes
results/studies/training_for_depth.md. The results also have variants that the package no longer has, which are defined
in notebook/training_for_depth.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from study import Study, arguments, trained

from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import load_pretrained
from universal_transformer.tasks import StoriesData
from universal_transformer.training.config import RunConfig
from universal_transformer.training.halting_stage import second_stage
from universal_transformer.typed import replaced

STEPS = 6
UPDATES = 500
DATA = StoriesData(
    num_people=3,
    num_places=4,
    num_objects=2,
    statements=(4, 8),
    recent_first=True,
    validation_stories=100,
    test_stories=400,
)
FULL = -math.log(2 * STEPS - 1)
"""The bias with which a halting unit starts near the full depth."""

HALTING = {"model.halting.side": "both"}
DELAYED = {**HALTING, "model.halting.bias": FULL, "training.halting_delay": 0.7}
CONSTANT = {"training.schedule": "constant"}
VARIANTS: dict[str, dict[str, Any]] = {
    "fixed depth": {},
    "fixed depth, loss after each step (mean)": {"training.step_loss": "mean"},
    "fixed depth, loss after each step (increasing)": {"training.step_loss": "increasing"},
    "random depth, uniform": {"training.depth": "random"},
    "fixed depth, running mean of weights .99": {"training.ema_decay": 0.99},
    "fixed depth, constant rate": CONSTANT,
    "fixed depth, constant rate, running mean .99": {**CONSTANT, "training.ema_decay": 0.99},
    "ACT from the start, bias -1": {**HALTING, "model.halting.bias": -1.0},
    "ACT from the start, bias -2.4": {**HALTING, "model.halting.bias": FULL},
    "ACT from 70 %, bias -2.4": DELAYED,
    "ACT from 70 %, bias -2.4, loss after each step (mean)": {**DELAYED, "training.step_loss": "mean"},
}
SECOND_STAGE = ("fixed depth", "fixed depth, loss after each step (mean)", "random depth, uniform")
"""Variants whose halting unit is fitted afterwards."""
THRESHOLDS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9)


def configuration(variant: str, *, seed: int) -> RunConfig:
    """Return the configuration of a run."""
    common = {
        "data": DATA,
        "model.sizes.width": 64,
        "model.sizes.filter_width": 256,
        "model.depth.max_steps": STEPS,
        "model.halting.side": "none",
        "model.step.dropout": 0.0,
        "training.minutes": None,
        "training.max_updates": UPDATES,
        "training.batch_tokens": 512,
        "training.schedule": "cosine",
        "training.ema_decay": None,
        "training.warmup_updates": 50,
        "training.validate_every": UPDATES // 4,
        "training.threads": 1,
        "training.seed": seed,
    }
    return replaced(replaced(RECIPES["stories"](), common), VARIANTS[variant])


def make(config: RunConfig, variant: str, *, folder: Path, threshold: float | None = None) -> dict[str, Any]:
    """Train where that is not done, and test; return the line of results."""
    task = config.data.load()
    result = trained(config, folder, task=task)
    options = DecodingOptions(halting_threshold=threshold)
    (total,) = evaluate(load_pretrained(folder / "model"), task, options=options).totals
    return {
        "variant": variant,
        "seed": config.training.seed,
        "updates": result.updates,
        "config": config.digest(),
        "chosen": result.chosen,
        "error": total.metrics["error"],
        "mean_steps": total.steps[0].mean,
        "count": total.count,
    }


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The results as Markdown, one row a variant."""
    yield "# Ways of training for depth\n"
    yield f"Generated stories, {UPDATES} updates of 512 positions, at most {STEPS} steps, width 64, no dropout, a"
    yield "cosine to 0 where nothing else is said. Each column has one figure for each seed, from 0, and the error of"
    yield "1,200 questions of the test. The second stage has 300 further updates of the unit."
    yield "`experiments/training_for_depth.py` wrote this table and trains the variants that the package has. A line of"
    yield "the .jsonl file without a digest of its configuration (`config`) comes from a prototype that is not kept;"
    yield "there the unit of the second stage started from random weights. `notebook/training_for_depth.md` defines the"
    yield "other variants.\n"
    yield "| training | test error, % | mean steps |\n|---|---|---|"
    for variant in dict.fromkeys(line["variant"] for line in lines):
        own = sorted((line for line in lines if line["variant"] == variant), key=lambda line: line["seed"])
        errors, steps = (
            ", ".join(f"{line[name]:.{digits}f}" for line in own) for name, digits in (("error", 1), ("mean_steps", 2))
        )
        yield f"| {variant} | {errors} | {steps} |"


STUDY = Study(__file__, key=("variant", "seed"), page=page)


def main(folder: Path, seeds: list[int]) -> None:
    """Make the runs that have no line yet."""
    for variant, seed in STUDY.missing((variant, seed) for seed in seeds for variant in VARIANTS):
        STUDY.add(make(configuration(variant, seed=seed), variant, folder=place(folder, variant, seed)))
    for variant in SECOND_STAGE:
        names = {f"{variant}; second stage, threshold {threshold}": threshold for threshold in THRESHOLDS}
        for name, seed in STUDY.missing((name, seed) for seed in seeds for name in names):
            first = place(folder, variant, seed)
            config = second_stage(configuration(variant, seed=seed), first)
            after = first.with_name(f"{first.name}-halting")
            STUDY.add(make(config, name, folder=after, threshold=names[name]))


def place(folder: Path, variant: str, seed: int) -> Path:
    """Return the folder of a run."""
    return folder / f"{variant}-{seed}".replace(" ", "-").replace(",", "").replace("%", "")


if __name__ == "__main__":
    name, *seeds = arguments(__doc__)
    main(Path(name), [int(seed) for seed in seeds or ("0", "1")])
