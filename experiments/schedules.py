"""Compare learning rate schedules and averages of weights in trainings of the length of a recipe.

    python experiments/schedules.py FOLDER

Trains generated stories for 1,200 updates with each schedule (about 2 minutes of one core), at a fixed depth of 6 or
with ACT, and writes results/schedules.jsonl and results/schedules.md. Runs are in FOLDER; one that was stopped is
continued, and a line that exists is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from universal_transformer.evaluation.measure import evaluate
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import load_pretrained
from universal_transformer.training.config import RunConfig
from universal_transformer.training.provenance import code_in_use
from universal_transformer.training.trainer import train
from universal_transformer.typed import replaced

RESULTS = Path(__file__).parents[1] / "results" / "schedules"
UPDATES, SEEDS = 1200, (0, 1)
CONSTANT = {"training.schedule": "constant"}
MEAN = {"training.ema_decay": 0.999}
HALTING = {"model.halting.side": "both"}
VARIANTS: dict[str, dict[str, Any]] = {
    "cosine to 0": {},
    "cosine to 0, running mean .999": MEAN,
    "cosine to 0, mean of the last 3 validations": {"training.average_checkpoints": 3},
    "constant": CONSTANT,
    "constant, running mean .999": {**CONSTANT, **MEAN},
    "constant, mean of the last 3 validations": {**CONSTANT, "training.average_checkpoints": 3},
    "ACT, cosine to 0": HALTING,
    "ACT, constant, running mean .999": {**HALTING, **CONSTANT, **MEAN},
}


def configuration(variant: str, *, seed: int) -> RunConfig:
    common = {
        "model.halting.side": "none",
        "training.minutes": 0.0,
        "training.max_updates": UPDATES,
        "training.validate_every": UPDATES // 8,
        "training.threads": 1,
        "training.seed": seed,
    }
    return replaced(replaced(RECIPES["stories"](), common), VARIANTS[variant])


def recorded() -> list[dict[str, Any]]:
    path = RESULTS.with_suffix(".jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    yield "# Schedules and averages of weights\n"
    yield f"`python experiments/schedules.py FOLDER`: stories, {UPDATES:,} updates, at a fixed depth of 6 where ACT is"
    yield "not named, one figure for each of seeds 0 and 1. The weights are the best on validation of the best of all"
    yield "validations, the last ones, and the average, where there is one.\n"
    yield "| schedule | test error, % | chosen weights |\n|---|---|---|"
    for variant in VARIANTS:
        own = [line for line in lines if line["variant"] == variant]
        errors = ", ".join(f"{line['error']:.2f}" for line in own)
        yield f"| {variant} | {errors} | {', '.join(line['chosen'] for line in own)} |"


def main(folder: Path) -> None:
    for variant in VARIANTS:
        for seed in SEEDS:
            if (variant, seed) in {(line["variant"], line["seed"]) for line in recorded()}:
                continue
            config = configuration(variant, seed=seed)
            run, task = folder / f"{list(VARIANTS).index(variant)}-{seed}", config.data.load()
            result = train(config, run, task=task, resume=run.exists())
            if result.stopped == "interrupted":
                raise SystemExit(130)
            (total,) = evaluate(load_pretrained(run / "model"), task).totals
            line = {
                "variant": variant,
                "seed": seed,
                "updates": result.updates,
                "config": config.digest(),
                "commit": code_in_use().commit,
                "chosen": result.chosen,
                "error": total.metrics["error"],
                "count": total.count,
            }
            with RESULTS.with_suffix(".jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            RESULTS.with_suffix(".md").write_text("\n".join(page(recorded())) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
