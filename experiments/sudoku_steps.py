"""Count the boards that a trained Sudoku model solves with more and fewer steps than in training.

    python experiments/sudoku_steps.py RUN

Draws 3,000 boards of the test part with another seed than the evaluation of the recipe, and writes
results/studies/sudoku_steps.jsonl and results/studies/sudoku_steps.md. A line that exists is kept.

The standard errors count boards of 4 × 4 and 6 × 6 cells that are symmetric to each other as one observation: with x_g
solved of the n_g boards of a group, n boards and a share p of them solved, √(Σ_g (x_g - p n_g)²) / n. That of the
difference from the steps of training has differences in place of x_g and p. Solutions of 9 × 9 cells are too many for
two of 3,000 boards to be symmetric.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from study import Study, arguments

from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.models.model import Model
from universal_transformer.registry import load_pretrained
from universal_transformer.tasks.boards import Board
from universal_transformer.tasks.sides.board import BLANK, SHAPES
from universal_transformer.tasks.sudoku import SudokuData
from universal_transformer.tasks.task import Task
from universal_transformer.training.run_config import RunConfig

STEPS = {4: (1, 2, 3, 4, 6, 8, 16), 6: (8, 12, 16, 24, 32, 48), 9: (8, 12, 16, 24, 32, 48)}
"""Side of a board -> steps in the test."""
BOARDS, SEED = 3000, 7

Counts = Mapping[str, tuple[int, int]]
"""Group of symmetric boards -> how many of them are solved, and how many there are."""


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    """One table for each side of a board: a row for each model and number of given cells, a column for each step."""
    yield "# Sudoku: boards solved with other numbers of steps than in training\n"
    yield f"`python experiments/sudoku_steps.py RUN`, a row for each seed of training. Share of {BOARDS:,} boards"
    yield "solved ± standard error, in %, with the steps in the test that the title of each column says. In brackets:"
    yield "the standard error of the difference from the steps of training."
    for side, columns in STEPS.items():
        own = [line for line in lines if line["side"] == side]
        counts = {f"{line['groups']:,}" for line in own if "groups" in line}
        yield f"\n## {side} × {side} cells\n"
        if counts:
            yield f"Boards that are not symmetric to each other: {', '.join(sorted(counts))}.\n"
        yield "| trained steps | given cells | seed | " + " | ".join(map(str, columns)) + " |"
        yield "|---|---|---|" + "---|" * len(columns)
        rows: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}
        for line in own:
            trained = f"{'1 to ' * (line['depth'] == 'random')}{line['trained_steps']}"
            names = (trained, "{} to {}".format(*line["givens"]), f"{line['seed']}")
            rows.setdefault(names, {})[line["steps"]] = line
        for names, found in sorted(rows.items()):
            cells = [cell(found[steps]) if steps in found else "" for steps in columns]
            yield "| " + " | ".join((*names, *cells)) + " |"


def cell(line: Mapping[str, Any]) -> str:
    change = f" ({line['change_error']:.2f})" if line.get("change_error") else ""
    return f"{100 * line['solved'] / line['count']:.2f} ± {standard_error(line):.2f}{change}"


def standard_error(line: Mapping[str, Any]) -> float:
    """Return the standard error of a share in per cent; of a line without groups, as if no boards were symmetric."""
    share = line["solved"] / line["count"]
    return line.get("error", 100 * math.sqrt(share * (1 - share) / line["count"]))


def clustered(sums: Mapping[str, int], sizes: Mapping[str, int]) -> float:
    """Return the standard error, in per cent, of a mean over boards of which whole groups are alike."""
    count = sum(sizes.values())
    mean = sum(sums.values()) / count
    return 100 * math.sqrt(sum((sums[name] - mean * sizes[name]) ** 2 for name in sizes)) / count


def symmetric(example: Example, side: int) -> str:
    """Return a text that is the same for all boards that are symmetric to that of an example."""
    cells = tuple(index - BLANK for index in example.source)
    if SHAPES[side].by_solution:
        return repr(cells)
    return SHAPES[side].canonical(Board(cells, tuple(map(sum, zip(cells, example.target, strict=True))))).hex()


def solved(model: Model, task: Task, *, steps: int) -> Counts:
    """Return how many boards of each group are solved."""
    rows = evaluate(model, task, options=DecodingOptions(max_steps=steps)).rows
    return {row.name: (round(row.metrics["sequence_accuracy"] * row.count), row.count) for row in rows}


def main(run: str) -> None:
    config, model = RunConfig.load(Path(run) / "config.json"), load_pretrained(run)
    assert isinstance(config.data, SudokuData), "a run of a Sudoku recipe"
    data, trained = config.data, config.model.max_steps
    key = {"config": config.digest(), "givens": [*data.numbers]}
    done = {line["steps"] for line in STUDY.lines() if line.items() >= key.items() and "groups" in line}
    if done >= {*STEPS[data.side]}:
        return
    drawn = dataclasses.replace(data, test_boards=BOARDS, validation_boards=1, seed=SEED).load()
    boards = [dataclasses.replace(board, group=symmetric(board, data.side)) for board in drawn.test["test"]]
    task = dataclasses.replace(drawn, test={"test": boards})
    before = solved(model, task, steps=trained)
    sizes = {name: count for name, (_, count) in before.items()}
    for steps in STEPS[data.side]:
        if steps in done:
            continue
        after = before if steps == trained else solved(model, task, steps=steps)
        sums = {name: right for name, (right, _) in after.items()}
        line = key | {
            "side": data.side,
            "depth": config.training.depth,
            "trained_steps": trained,
            "seed": config.training.seed,
            "steps": steps,
            "solved": sum(sums.values()),
            "count": len(boards),
            "groups": len(sizes),
            "error": clustered(sums, sizes),
            "change_error": clustered({name: sums[name] - before[name][0] for name in sizes}, sizes),
        }
        STUDY.add(line)


STUDY = Study(__file__, key=("config", "givens", "steps"), page=page)


if __name__ == "__main__":
    main(*arguments(__doc__, most=1))
