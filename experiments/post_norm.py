"""Compare what post-norm needs to be trained: the residual of DeepNorm, learning rates, and longer warm-ups.

    python experiments/post_norm.py FOLDER

Trains bAbI 1K joint at a fixed depth of 6 for 1,000 updates in each way (about a minute of one core), and for 3,300
updates in the better ones, and writes the validation error during training to results/studies/post_norm.jsonl and
results/studies/post_norm.md. Runs are in FOLDER; one that was stopped is continued, and a line that exists is kept.
Needs UT_DATA.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from study import Study, arguments, train_run

from universal_transformer.runs.journal import read_metrics
from universal_transformer.training.provenance import code_in_use

SHORT, LONG, PARTS = 1000, 3300, 4
COMMON = ["babi-1k-joint", "--model.halting.side", "none", "--training.minutes", "None"]
COMMON += ["--training.halting-delay", "0", "--training.ponder-weight", "0"]
COMMON += ["--training.schedule", "cosine", "--training.ema-decay", "0"]
NAMES = {"pre": "pre-norm", "post": "post-norm (the paper)", "deep": "post-norm with DeepNorm"}
WAYS = (
    ("pre", "2e-3", 200, SHORT),
    ("post", "2e-3", 400, SHORT),
    ("post", "5e-4", 400, SHORT),
    ("deep", "4e-3", 400, SHORT),
    ("deep", "2e-3", 400, SHORT),
    ("deep", "1e-3", 400, SHORT),
    ("deep", "5e-4", 400, SHORT),
    ("deep", "2e-3", 800, SHORT),
    ("pre", "2e-3", 200, LONG),
    ("deep", "2e-3", 400, LONG),
    ("deep", "1e-3", 400, LONG),
    ("deep", "1e-3", 1600, LONG),
)
"""Norm (`step.norm`), learning rate, updates of the warm-up, and all updates."""


def measure(way: tuple[str, str, int, int], folder: Path) -> dict[str, Any]:
    """Train, or continue, and return the line of results."""
    norm, rate, warmup, updates = way
    run = folder / f"{norm}-{rate}-{warmup}-{updates}"
    chosen = ["--model.step.norm", norm, "--training.learning-rate", rate, "--training.warmup-updates", str(warmup)]
    chosen += ["--training.max-updates", str(updates), "--training.validate-every", str(updates // PARTS)]
    train_run(run, *COMMON, *chosen)
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["event"] == "validation"]
    curve = [[line["update"], line["error"], line["cross_entropy"]] for line in lines if "weights" not in line]
    way_of = {"norm": norm, "rate": rate, "warmup": warmup, "updates": updates, "seed": 0}
    return {**way_of, "commit": code_in_use().commit, "curve": curve}


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    yield "# What post-norm needs to be trained\n"
    yield "`python experiments/post_norm.py FOLDER`: bAbI 1K joint, fixed depth of 6, cosine to 0, bfloat16, seed 0."
    yield "Validation error in per cent."
    for updates in (SHORT, LONG):
        parts = [updates // PARTS * part for part in range(1, PARTS + 1)]
        yield "\n| norm | learning rate | warm-up | " + " | ".join(f"{part:,} updates" for part in parts) + " |"
        yield "|---|---|---|" + "---|" * PARTS
        for line in (line for line in lines if line["updates"] == updates):
            errors = {update: f"{100 * error:.1f}" for update, error, _ in line["curve"]}
            cells = " | ".join(errors.get(part, "") for part in parts)
            yield f"| {NAMES[line['norm']]} | {line['rate']} | {line['warmup']} | {cells} |"


STUDY = Study(__file__, key=("norm", "rate", "warmup", "updates"), page=page)


if __name__ == "__main__":
    (folder,) = arguments(__doc__, most=1)
    for way in STUDY.missing(WAYS):
        STUDY.add(measure(way, Path(folder)))
