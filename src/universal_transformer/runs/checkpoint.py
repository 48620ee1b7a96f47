"""Checkpoints, written completely or not at all: tensors as safetensors, scalars as JSON, a SHA-256 of every file.

Loading accepts only files that agree with the manifest, and so checks nothing else.
"""

import errno
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch

from universal_transformer.errors import UserError
from universal_transformer.files import decode_json, encode_json, new_folder, show_path
from universal_transformer.manifest import MANIFEST, entry_of, read_listed, read_manifest, seal
from universal_transformer.training.display import Tensors

NAME = re.compile(r"[0-9]{9}-[0-9]{6}")
"""Names of checkpoints: update and number of saves. Anything else in the folder is the user's and is left alone."""
PARTIAL = re.compile(rf"\.{NAME.pattern}\.partial")
STATE = "state.json"
DAMAGED = "damaged-"
SET_ASIDE = re.compile(DAMAGED + NAME.pattern)
KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run: `tensors` by file name (without .safetensors) and name, `state` as plain JSON."""

    tensors: Mapping[str, Tensors]
    state: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, *, name: str) -> Path:
    """Write `checkpoint` as `folder`/`name` (`NAME`), then delete all but the newest `KEPT`; names sort by age.

    Raises UserError when the disk cannot store it; earlier checkpoints stay unchanged.
    """
    assert NAME.fullmatch(name)
    target = folder / name
    files = {
        f"{part}.safetensors": safetensors.torch.save({key: tensor.contiguous() for key, tensor in tensors.items()})
        for part, tensors in checkpoint.tensors.items()
    }
    files[STATE] = encode_json(checkpoint.state)
    try:
        folder.mkdir(exist_ok=True)
        remove_partial(folder)
        with new_folder(target) as staging:
            for file, data in files.items():
                (staging / file).write_bytes(data)
            if seal(staging) != {file: entry_of(data) for file, data in files.items()}:
                raise OSError(0, "it is not read back as it was written")
    except OSError as error:
        raise UserError(
            f"{target}: the checkpoint could not be saved: {error.strerror}; earlier ones are unchanged"
        ) from error
    for old in _newest_first(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest intact checkpoint (None if there never was one) and a warning for each damaged one.

    Damaged ones are renamed to damaged-NAME if an earlier one is intact. UserError when none is.
    """
    damaged: dict[Path, str] = {}
    for path in _newest_first(folder):
        try:
            checkpoint = _load(path)
        except UserError as error:
            damaged[path] = str(error)
            continue
        for broken in damaged:
            kept = broken.with_name(f"{DAMAGED}{broken.name}")
            shutil.rmtree(kept, ignore_errors=True)
            broken.rename(kept)
        return checkpoint, [
            f"checkpoint {path} is damaged ({why}): using the previous checkpoint" for path, why in damaged.items()
        ]
    reasons = [f"{path.name} ({why})" for path, why in damaged.items()]
    reasons += sorted(path.name for path in _folders(folder, SET_ASIDE))
    if reasons:
        raise UserError(
            f"{show_path(folder)}: no checkpoint is intact; damaged are {', '.join(reasons)}; "
            "delete the folder to start the run again"
        )
    return None, []


def remove_partial(folder: Path) -> None:
    for path in _folders(folder, PARTIAL):
        shutil.rmtree(path)


def newest(folder: Path) -> str | None:
    return next((path.name for path in _newest_first(folder)), None)


def _load(path: Path) -> Checkpoint:
    """Read a checkpoint; UserError for any damage, OSError where it is the system that refuses."""
    for entry in path.iterdir():
        if not os.access(entry, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(entry))
    contents = {file: read_listed(path / file, entry) for file, entry in read_manifest(path).items()}
    if STATE not in contents:
        raise UserError(f"{show_path(path / MANIFEST)}: {STATE} is missing")
    state = decode_json(contents.pop(STATE), where=show_path(path / STATE))
    tensors = {file.removesuffix(".safetensors"): safetensors.torch.load(data) for file, data in contents.items()}
    return Checkpoint(tensors=tensors, state=state)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(_folders(folder, NAME), reverse=True)


def _folders(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """Return the folders of such names in `folder`; a link to one is not ours."""
    paths = [path for path in folder.iterdir() if name.fullmatch(path.name)] if folder.exists() else []
    return [path for path in paths if path.is_dir() and not path.is_symlink()]
