"""Count the boards that a trained Sudoku model solves with more and fewer steps than in training.

    python experiments/sudoku_steps.py RUN

Draws 3,000 boards of the test part with another seed than the evaluation of the recipe, with as many given cells as in
training and with fewer, and writes results/sudoku_steps.jsonl and results/sudoku_steps.md. A line that exists is kept.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from universal_transformer.evaluation.inference import InferenceOptions
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.registry import load_pretrained
from universal_transformer.tasks.sudoku import SudokuData
from universal_transformer.training.config import RunConfig

RESULTS = Path(__file__).parents[1] / "results" / "sudoku_steps"
STEPS = {4: (1, 2, 3, 4, 6, 8, 16), 6: (8, 12, 16, 24, 32, 48), 9: (8, 12, 16, 24, 32, 48)}
"""Side of a board -> steps in the test."""
FEWER = {6: (8, 9), 9: (28, 29)}
"""Side of a board -> given cells of boards that are harder than those of training."""
BOARDS, SEED = 3000, 7


def recorded() -> list[dict[str, Any]]:
    path = RESULTS.with_suffix(".jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """One table for each side of a board: a row for each model and number of given cells, a column for each step."""
    yield "# Sudoku: boards solved with other numbers of steps than in training\n"
    yield f"`python experiments/sudoku_steps.py RUN`, one seed of training. Share of {BOARDS:,} boards"
    yield "solved, in %, with the steps in the test that the title of each column says."
    for side, columns in STEPS.items():
        yield f"\n## {side} × {side} cells\n"
        yield "| trained steps | given cells | " + " | ".join(map(str, columns)) + " |"
        yield "|---|---|" + "---|" * len(columns)
        rows: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for line in lines:
            if line["side"] == side:
                trained = f"{'1 to ' * (line['depth'] == 'random')}{line['trained_steps']}"
                rows.setdefault((trained, "{} to {}".format(*line["givens"])), {})[line["steps"]] = line
        for names, own in rows.items():
            cells = [
                f"{100 * own[steps]['solved'] / own[steps]['count']:.2f}" if steps in own else "" for steps in columns
            ]
            yield "| " + " | ".join((*names, *cells)) + " |"


def main(run: str) -> None:
    config, model = RunConfig.load(Path(run) / "config.json"), load_pretrained(run)
    assert isinstance(config.data, SudokuData), "a run of a Sudoku recipe"
    for givens in (config.data.numbers, *(FEWER[side] for side in (config.data.side,) if side in FEWER)):
        data = dataclasses.replace(config.data, givens=givens, test_boards=BOARDS, validation_boards=1, seed=SEED)
        done = {(line["config"], tuple(line["givens"]), line["steps"]) for line in recorded()}
        task = None
        for steps in STEPS[data.side]:
            if (config.digest(), givens, steps) in done:
                continue
            task = task or data.load()
            (total,) = evaluate(model, task, options=InferenceOptions(max_steps=steps)).totals
            line = {
                "config": config.digest(),
                "side": data.side,
                "depth": config.training.depth,
                "trained_steps": config.model.max_steps,
                "givens": givens,
                "steps": steps,
                "solved": round(total.metrics["sequence_accuracy"] * total.count),
                "count": total.count,
            }
            with RESULTS.with_suffix(".jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
            RESULTS.with_suffix(".md").write_text("\n".join(table(recorded())) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
