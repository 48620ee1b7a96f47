"""What may change in the configuration of a run when it continues."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from universal_transformer.errors import UserError, suggestion
from universal_transformer.tasks.task import file_fields
from universal_transformer.training.config import ACCEPTABLE, LIMITS, RunConfig, TrainingConfig
from universal_transformer.typed import listed

FREE = {*(f"training.{field}" for field in LIMITS), "model.execution.activation_checkpointing"}
"""Fields that may change without being named: the length of a run, logging, and what changes no number."""

OF_DATA = ("data_dir", "memory_mb")
"""Fields of the data that may change as long as the examples do not."""


class OtherRunError(UserError):
    """A checkpoint or a configuration that is sound, but belongs to another run."""


def check_accepted(fields: Collection[str]) -> None:
    """UserError for a field that cannot change when a run continues (`ACCEPTABLE`)."""
    for field in fields:
        if field not in ACCEPTABLE:
            free = "may change without it" if field in FREE else "cannot change when a run continues"
            raise UserError(
                f"--accept-change {field}: {free}{suggestion(field, ACCEPTABLE)}; allowed: {listed(ACCEPTABLE)}"
            )


def configuration_changes(
    saved: RunConfig, given: RunConfig, *, accepted: Collection[str], where: str
) -> dict[str, str]:
    """Return the fields that differ, each with its two values as a text.

    An OtherRunError at `where` names the fields that may not change. Those are all but `FREE`, `accepted` ones, names
    of files and folders with data, and how large a file in memory may be: their content is compared (`recorded_data`).
    """
    found = _differences(_all_fields(saved), _all_fields(given), where="")
    allowed = FREE | {*accepted} | {f"data.fields.{field}" for field in (*file_fields(given.data), *OF_DATA)}
    if refused := {field: text for field, text in found.items() if field not in allowed}:
        options = [f"--accept-change {field}" for field in refused if field in ACCEPTABLE]
        remedy = f"; to change it deliberately: {' '.join(options)}" * (len(options) == len(refused))
        raise OtherRunError(f"{where}: not the same run: {'; '.join(refused.values())}{remedy}")
    return found


def schedule_jumps(saved: TrainingConfig, given: TrainingConfig) -> list[str]:
    """Return which schedules jump because the length of the run changed."""
    old, new = ((one.max_updates, 0 if one.max_updates else one.minutes) for one in (saved, given))
    following = ["learning rate"] * (given.schedule in ("cosine", "linear"))
    following += ["ponder weight"] * (given.halting_delay > 0)
    if old == new or not following:
        return []
    return [f"the length of the run, and with it, in one jump, {' and '.join(following)}"]


def _all_fields(config: RunConfig) -> dict[str, Any]:
    """Return the fields of a run, those of `model.execution` at their defaults included."""
    return {**config.to_dict(), "model": {"kind": config.model.kind, **dataclasses.asdict(config.model)}}


def _differences(saved: Any, given: Any, *, where: str) -> dict[str, str]:
    if isinstance(saved, dict) and isinstance(given, dict):
        found: dict[str, str] = {}
        for key in sorted(saved.keys() | given.keys()):
            found |= _differences(saved.get(key), given.get(key), where=f"{where}.{key}".lstrip("."))
        return found
    return {} if saved == given else {where: f"{where} was {saved!r}, is now {given!r}"}
