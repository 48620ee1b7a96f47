"""Invented results of runs."""

import dataclasses

from paper.results import Result
from paper.tables import TABLES
from universal_transformer.tasks import BabiData
from universal_transformer.tasks.babi import TASK_NAMES


def result(
    row="10k-single/ut-halting/1",
    *,
    table="table1",
    seed=0,
    error=0.0,
    validation=0.0,
    loss=0.1,
    minutes=2.0,
    **fields,
):
    """A result of `row`; of table 1, `error` is one figure, or one for each task of a joint row."""
    config = TABLES[table].rows[row]()
    config = dataclasses.replace(
        config, training=dataclasses.replace(config.training, seed=seed, minutes=minutes, max_updates=None)
    )
    given = {
        "table": table,
        "row": row,
        "seed": seed,
        "config": config.digest(),
        "figures": _errors(config, error) if isinstance(config.data, BabiData) else {},
        "validation": {"error": validation, "cross_entropy": loss},
        "mean_steps": 2.5,
        "steps_by_supports": {"1": [5, 5], "2": [0, 10]},
        "steps": {},
        "examples": {"train": 9000, "validation": 1000, "test": 1000},
        "parameters": 200_000,
        "updates": 1234,
        "seconds": 120.0,
        "resumes": 0,
        "stopped": "minutes",
        "chosen": "best",
        "hardware": {"cpu": "Some | CPU", "cores": 2, "threads": 2, "device": "cpu"},
        "versions": {"python": "3.11.0", "torch": "2.13.0", "universal_transformer": "0.1.0"},
        "commit": "0123456789abcdef",
        "clean": True,
        "finished": "2026-01-02T03:04:05+00:00",
        "notes": [],
        "warnings": [],
        "command": "ut train babi",
        "settings": config.to_dict(),
        "curve": [],
    }
    return Result(**{**given, **fields})


def _errors(config, error):
    tasks = config.data.tasks
    errors = error if isinstance(error, list) else [error] * len(tasks)
    return {
        f"task {number} {TASK_NAMES[number]}": {"error": one, "count": 1000, "mean_steps": 2.5}
        for number, one in zip(tasks, errors, strict=True)
    }
