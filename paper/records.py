"""Runs that were trained in several stages, as rows of a table: what ``ut evaluate --record`` wrote of the last one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.results import Result
from universal_transformer.cli.fields import override
from universal_transformer.evaluation.scores import StepCounts, mean_over
from universal_transformer.files import read_json
from universal_transformer.recipes import RECIPES


def recorded(records: Mapping[str, str], folder: Path, *, table: str) -> list[Result]:
    """Return the results of `records`, row -> name of a file in `folder`; a file that is not there is no result."""
    paths = {row: folder / f"{name}.json" for row, name in records.items()}
    return [_result(path, table=table, row=row) for row, path in paths.items() if path.is_file()]


def _result(path: Path, *, table: str, row: str) -> Result:
    record = read_json(path)
    report, begun, end = record["report"], record["started"], record["ended"]
    (total,) = report["totals"]
    steps = {one["side"]: one["counts"] for one in total["steps"]}
    command, _, earlier = record["train"].partition(" --from ")
    _, _, recipe, *options = shlex.split(command)
    stages = [f"trained last from the weights of {earlier}: the notebook has all commands"] if earlier else []
    return Result(
        table=table,
        row=row,
        seed=record["seed"],
        config=record["digest"],
        figures={
            one["group"]: {**one["metrics"], "count": one["count"], "mean_steps": _mean(one["steps"])}
            for one in report["rows"]
        },
        validation={"error": 100 * end["error"], "cross_entropy": end["cross_entropy"]},
        mean_steps=_mean(total["steps"]),
        steps_by_supports={str(one["num_supports"]): one["steps"]["counts"] for one in report["steps_by_supports"]},
        steps=steps,
        examples={
            "train": begun["train_examples"],
            "validation": begun["validation_examples"],
            "test": total["count"],
        },
        parameters=begun["parameters"],
        updates=end["update"],
        seconds=end["seconds"],
        resumes=record["resumed"],
        stopped=end["stopped"],
        chosen=end["chosen"],
        hardware=record["hardware"],
        versions=record["versions"],
        commit=begun["commit"],
        clean=begun["clean"],
        finished="",
        notes=[*report["notes"], *stages],
        warnings=report["warnings"],
        command=record["train"],
        settings=override(RECIPES[recipe](), options, prog="ut train").to_dict(),
        curve=[],
    )


def _mean(sides: list[dict[str, Any]]) -> float:
    return mean_over(StepCounts(one["side"], tuple(one["counts"])) for one in sides)
