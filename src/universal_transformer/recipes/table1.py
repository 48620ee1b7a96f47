"""Table 1, bAbI question answering: {10K, 1K} × {one task a model, all 20 in one} × three models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from universal_transformer.recipes.facts import babi, babi_1k_joint, babi_10k_joint
from universal_transformer.recipes.table import Table
from universal_transformer.recipes.table1_figures import COLUMNS, MODELS, NUM_TASKS, render
from universal_transformer.tasks import BabiData
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import replaced


class _Column(NamedTuple):
    recipe: Callable[[], RunConfig]
    joint: bool


_COLUMNS: dict[str, _Column] = {
    "10k-single": _Column(babi, joint=False),
    "10k-joint": _Column(babi_10k_joint, joint=True),
    "1k-single": _Column(babi, joint=False),
    "1k-joint": _Column(babi_1k_joint, joint=True),
}
_FIELDS: dict[str, dict[str, bool | str]] = {
    "transformer": {"model.step.tied": False, "model.halting.side": "none"},
    "ut": {"model.step.tied": True, "model.halting.side": "none"},
    "ut-halting": {"model.step.tied": True, "model.halting.side": "both"},
}
"""Model of a row -> the fields that make it, by dotted path."""


def babi_row(*, column: str, model: str, task: str) -> RunConfig:
    """Return the run of one cell, or of one task of a cell: `task` is a number, or "joint" for all 20."""
    config = _COLUMNS[column].recipe()
    assert isinstance(config.data, BabiData)
    data = dataclasses.replace(config.data, task=task, size="10k" if column.startswith("10k") else "1k")
    return replaced(config, {"data": data, **_FIELDS[model]})


def _rows() -> dict[str, Callable[[], RunConfig]]:
    found: dict[str, Callable[[], RunConfig]] = {}
    for column in COLUMNS:
        for model in MODELS:
            if _COLUMNS[column].joint:
                found[f"{column}/{model}"] = partial(babi_row, column=column, model=model, task="joint")
                continue
            for number in range(1, NUM_TASKS + 1):
                found[f"{column}/{model}/{number}"] = partial(
                    babi_row, column=column, model=model, task=str(number)
                )
    return found


TABLE1 = Table(
    name="table1",
    title="bAbI question answering",
    naming="COLUMN/MODEL/TASK (COLUMN/MODEL where one model learns all tasks)",
    rows=_rows(),
    render=render,
)
