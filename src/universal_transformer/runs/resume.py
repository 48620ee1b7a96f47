"""Whether a run may begin in a folder or continue there, and what may have changed since."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import quoted, show_path
from universal_transformer.runs.folder import CONFIG, is_empty
from universal_transformer.runs.origin import RunOrigin, file_changes
from universal_transformer.tasks.task import file_fields
from universal_transformer.training.config import RunConfig, TrainingConfig
from universal_transformer.typed import listed

LIMITS = ("minutes", "max_updates", "patience", "save_minutes", "log_every", "tensorboard")
"""Fields of `TrainingConfig` that may change without being named. Cosine and linear schedules and `halting_delay`
depend on the length of the run: they jump to their values in a run of the new length. A resume warns of it.
"""
FREE = {*(f"training.{field}" for field in LIMITS), "model.execution.activation_checkpointing"}
"""Fields that may change without being named: the length of a run, logging, and what changes no number."""
OF_DATA = ("data_dir", "memory_mb")
"""Fields of the data that may change as long as the examples do not."""
ACCEPTABLE = tuple(
    f"training.{field}"
    for field in (
        "learning_rate",
        "schedule",
        "warmup_updates",
        "betas",
        "epsilon",
        "weight_decay",
        "clip_norm",
        "skip_outliers",
        "label_smoothing",
        "ponder_weight",
        "ponder_warmup_updates",
        "validate_every",
        "precision",
        "threads",
        "accumulate",
        "parallel",
        "device",
        "compile",
    )
)
"""Fields that may change deliberately when a run continues (``--accept-change training.learning_rate``): those that
no weight, state of Adam or place in the data depends on.
"""


def check_usable(folder: Path, config: RunConfig, *, resume: bool, accepted: Collection[str] = ()) -> list[str]:
    """Refuse a folder that a new run would overwrite, or a resume of another run; return the changes.

    `configuration_changes` says what a resume may change. `accepted` are fields that it changes deliberately. If the
    length of the run changed, schedules that depend on it are named too.
    """
    try:
        str(folder).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{show_path(folder)}: the name of this run folder is not UTF-8, the encoding of its files; choose another"
        ) from error
    check_accepted(accepted)
    if not resume:
        if accepted:
            raise UserError("accepted changes are for a run that continues, not for a new one: leave them out")
        if folder.exists() and not (folder.is_dir() and is_empty(folder)):
            begun = f": continue it (ut train --resume {quoted(folder)}) or choose another"
            what = begun if (folder / CONFIG).is_file() else ", and no run: choose another"
            raise UserError(f"{folder} is there already{what}")
        return []
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} has no run to continue: {CONFIG} is missing")
    saved = RunConfig.load(folder / CONFIG)
    changes = configuration_changes(saved, config, accepted=accepted, where=show_path(folder))
    return [*changes.values(), *schedule_jumps(saved.training, config.training)]


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

    A UserError at `where` names the fields that may not change. Those are all but `FREE`, `accepted` ones, names
    of files and folders with data, and how large a file in memory may be: their content is compared.
    """
    found = _differences(_all_fields(saved), _all_fields(given), where="")
    allowed = FREE | {*accepted} | {f"data.fields.{field}" for field in (*file_fields(given.data), *OF_DATA)}
    if refused := {field: text for field, text in found.items() if field not in allowed}:
        options = [f"--accept-change {field}" for field in refused if field in ACCEPTABLE]
        remedy = f"; to change it deliberately: {' '.join(options)}" * (len(options) == len(refused))
        raise UserError(f"{where}: not the same run: {'; '.join(refused.values())}{remedy}")
    return found


def continued(
    saved: RunOrigin, now: RunOrigin, *, accepted: Collection[str], folder: str, checkpoint: str
) -> list[str]:
    """Return what has changed in the configuration; UserError for other data, or what may not change."""
    if now.data != saved.data:
        how = file_changes(saved.files, now.files) or [f"examples were {saved.data}, are now {now.data}"]
        raise UserError(f"{folder}: the data have changed: {'; '.join(how)}; a run continues with the same data")
    found = configuration_changes(saved.config, now.config, accepted=accepted, where=f"{checkpoint} and {CONFIG}")
    for field in accepted:
        if field not in found:
            raise UserError(f"--accept-change {field}: it has not changed; give its new value, or leave this out")
    return [*found.values(), *schedule_jumps(saved.config.training, now.config.training)]


def warnings_of(saved: RunOrigin, now: RunOrigin) -> list[str]:
    """Return what is not as it was, and does not stop the run."""
    texts = [
        f"{name} was {value}, is now {now.surroundings[name]}: the last bits of the losses may differ"
        for name, value in saved.surroundings.items()
        if value != now.surroundings[name]
    ]
    same = "the examples to train on and to validate are the same"
    return texts + [f"{text}; {same}" for text in file_changes(saved.files, now.files)]


def schedule_jumps(saved: TrainingConfig, given: TrainingConfig) -> list[str]:
    """Return which schedules jump because the length of the run changed."""
    old, new = ((one.max_updates, None if one.max_updates else one.minutes) for one in (saved, given))
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
