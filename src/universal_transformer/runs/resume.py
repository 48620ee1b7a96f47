"""Whether a run may begin in a folder or continue there: what its numbers follow from, and what may have changed.

Every checkpoint records the configuration, the data and the surroundings of its run (`RunOrigin`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from universal_transformer.data.example import Example
from universal_transformer.errors import UserError, refuse, suggestion
from universal_transformer.files import quoted, show_path
from universal_transformer.manifest import FileEntry, entry_of_file
from universal_transformer.runs.folder import CONFIG, is_empty
from universal_transformer.tasks.lazy import MappedExamples
from universal_transformer.tasks.task import Task, file_fields
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import listed, typed

LIMITS = ("minutes", "max_updates", "patience", "save_minutes", "log_every", "tracker")
"""Fields of `TrainingConfig` that may change without being named. Cosine and linear schedules and `halting_delay`
depend on the length of the run: they jump to their values in a run of the new length. A resume warns of it. A
curriculum depends on `log_every`, which may not change then.
"""
FREE = {*(f"training.{field}" for field in LIMITS), "model.execution.activation_checkpointing"}
"""Fields that may change without being named: the length of a run, logging, and what changes no number."""
OF_DATA = ("data_dir", "memory_mb")
"""Fields of the data that may change as long as the examples do not."""
ACCEPTABLE = tuple(
    f"training.{field}"
    for field in (
        *("learning_rate", "schedule", "warmup_updates", "betas", "epsilon", "weight_decay", "clip_norm"),
        *("skip_outliers", "label_smoothing", "ponder_weight", "ponder_warmup_updates", "validate_every"),
        *("precision", "threads", "accumulate", "parallel", "device", "compile"),
    )
)
"""Fields that may change deliberately when a run continues (``--accept-change training.learning_rate``): those that
no weight, state of Adam or place in the data depends on.
"""


@dataclass(frozen=True)
class RunOrigin:
    """What the numbers of a run follow from, apart from its code."""

    config: RunConfig
    data: str
    """Digest of its training and validation examples."""
    files: Mapping[str, FileEntry]
    """The files they were read from, by field."""
    surroundings: Mapping[str, str | int]
    """Threads, processes, version of torch and device: with others, the last bits of a loss may differ."""

    @classmethod
    def now(cls, config: RunConfig, task: Task, device: torch.device, *, processes: int = 1) -> RunOrigin:
        files = {name: entry_of_file(path) for name, path in file_fields(config.data).items() if path.is_file()}
        surroundings: dict[str, str | int] = {
            "threads": torch.get_num_threads(),
            "processes": processes,
            "torch": torch.__version__,
            "device": device.type,
        }
        return cls(config, data_digest(task.train, task.validation), files, surroundings)

    def to_dict(self) -> dict[str, Any]:
        files = {name: dataclasses.asdict(file) for name, file in self.files.items()}
        return {**vars(self), "config": self.config.to_dict(), "files": files}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], *, where: str) -> RunOrigin:
        config = RunConfig.from_dict(fields["config"], name=where)
        files = typed(fields["files"], dict[str, FileEntry], where=where)
        return cls(config, fields["data"], files, fields["surroundings"])


def file_changes(before: Mapping[str, FileEntry], now: Mapping[str, FileEntry]) -> list[str]:
    """Return which files have another content than before; moved ones are the same."""
    texts = []
    for name in sorted(before.keys() | now.keys()):
        old, new = (f"{files[name].bytes:,} bytes" if name in files else "missing" for files in (before, now))
        if before.get(name) != now.get(name):
            texts.append(f"the file of data.{name} was {old}, is now {new if new != old else f'other {new}'}")
    return texts


def data_digest(*sets: Sequence[Example]) -> str:
    """Return 12 hexadecimal digits that change with any id of any example."""
    digest = hashlib.sha256()
    for examples in sets:
        digest.update(f"{len(examples)} examples\n".encode())
        if isinstance(examples, MappedExamples):
            digest.update(examples.digest.encode())
            continue
        for example in examples:
            for side in (example.source, example.target):
                if isinstance(side, np.ndarray):
                    digest.update(f"{side.shape}".encode() + side.tobytes())
                else:
                    digest.update(f"{side}".encode())
    return digest.hexdigest()[:12]


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
    for field in accepted:
        free = "may change without it" if field in FREE else "cannot change when a run continues"
        allowed = f"{suggestion(field, ACCEPTABLE)}; allowed: {listed(ACCEPTABLE)}"
        refuse((field not in ACCEPTABLE, f"--accept-change {field}: {free}{allowed}"))
    is_run = (folder / CONFIG).is_file()
    taken = folder.exists() and not (folder.is_dir() and is_empty(folder))
    what = f": continue it (ut train --resume {quoted(folder)}) or" if is_run else ", and no run:"
    refuse(
        (not resume and accepted, "accepted changes are for a run that continues, not for a new one: leave them out"),
        (not resume and taken, f"{folder} is there already{what} choose another"),
        (resume and not is_run, f"{folder} has no run to continue: {CONFIG} is missing"),
        (resume and not os.access(folder, os.W_OK), f"{folder}: no permission to write; continue a copy of it"),
    )
    if not resume:
        return []
    saved = RunConfig.load(folder / CONFIG)
    return list(configuration_changes(saved, config, accepted=accepted, where=show_path(folder)).values())


def configuration_changes(
    saved: RunConfig, given: RunConfig, *, accepted: Collection[str], where: str
) -> dict[str, str]:
    """Return the fields that differ, each with its two values as a text, and "length" if schedules jump because of it.

    A UserError at `where` names the fields that may not change. Those are all but `FREE`, `accepted` ones, names
    of files and folders with data, and how large a file in memory may be: their content is compared.
    """
    found = _differences(_all_fields(saved), _all_fields(given), where="")
    free = FREE - {"training.log_every"} if saved.training.curriculum else FREE
    allowed = free | {*accepted} | {f"data.fields.{field}" for field in (*file_fields(given.data), *OF_DATA)}
    if refused := {field: text for field, text in found.items() if field not in allowed}:
        options = [f"--accept-change {field}" for field in refused if field in ACCEPTABLE]
        remedy = f"; to change it deliberately: {' '.join(options)}" * (len(options) == len(refused))
        raise UserError(f"{where}: not the same run: {'; '.join(refused.values())}{remedy}")
    old, new = (
        (training.max_updates, training.max_updates or training.minutes)
        for training in (saved.training, given.training)
    )
    following = ["learning rate"] * (given.training.schedule in ("cosine", "linear"))
    following += ["ponder weight"] * (given.training.halting_delay > 0)
    jump = f"the length of the run, and with it, in one jump, {' and '.join(following)}"
    return found | ({"length": jump} if old != new and following else {})


def continued(
    saved: RunOrigin, now: RunOrigin, *, accepted: Collection[str], folder: str, checkpoint: str
) -> list[str]:
    """Return what has changed in the configuration; UserError for other data, or what may not change."""
    if now.data != saved.data:
        how = file_changes(saved.files, now.files) or [f"examples were {saved.data}, are now {now.data}"]
        raise UserError(f"{folder}: the data have changed: {'; '.join(how)}; a run continues with the same data")
    found = configuration_changes(saved.config, now.config, accepted=accepted, where=f"{checkpoint} and {CONFIG}")
    same = "it has not changed; give its new value, or leave this out"
    refuse(*((field not in found, f"--accept-change {field}: {same}") for field in accepted))
    return list(found.values())


def warnings_of(saved: RunOrigin, now: RunOrigin) -> list[str]:
    """Return what is not as it was, and does not stop the run."""
    texts = [
        f"{name} was {value}, is now {now.surroundings[name]}: the last bits of the losses may differ"
        for name, value in saved.surroundings.items()
        if value != now.surroundings[name]
    ]
    same = "the examples to train on and to validate are the same"
    return texts + [f"{text}; {same}" for text in file_changes(saved.files, now.files)]


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
