"""Checkpoints, written completely or not at all: tensors as safetensors, scalars as JSON, a SHA-256 of every file.

A save writes a temporary folder next to the target, syncs it, reads it back, renames it, syncs the parent, and only
then deletes older checkpoints. Loading accepts only files that agree with the manifest.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
from safetensors import SafetensorError

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError
from universal_transformer.files import (
    decode_json,
    encode_json,
    is_real_folder,
    refuse_link,
    show,
    show_path,
    sync_folder,
    write_synced,
)
from universal_transformer.manifest import MANIFEST, encode_manifest, entry_of, read_listed, read_manifest
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.training.changes import OtherRunError
from universal_transformer.training.replica import divided_as, whole
from universal_transformer.typed import listed

NAME = re.compile(r"[0-9]{9}-[0-9]{6}")
"""Names of checkpoints: update and number of saves. Anything else in the folder is the user's and is left alone."""
PARTIAL = re.compile(rf"\.{NAME.pattern}\.partial")
STATE = "state.json"
DAMAGED = "damaged-"
SET_ASIDE = re.compile(DAMAGED + NAME.pattern)
KEPT = 2

Tensors = Mapping[str, Tensor]
Content = TypeVar("Content")


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
    staging, target = folder / f".{name}.partial", folder / name
    refuse_link(folder, folder=True)
    try:
        folder.mkdir(exist_ok=True)
        remove_partial(folder)
        staging.mkdir()
        files = {
            f"{part}.safetensors": safetensors.torch.save({name: one.contiguous() for name, one in tensors.items()})
            for part, tensors in checkpoint.tensors.items()
        }
        files[STATE] = encode_json(checkpoint.state)
        files[MANIFEST] = encode_manifest({file: entry_of(data) for file, data in files.items()})
        for file, data in files.items():
            write_synced(staging / file, data)
        sync_folder(staging)
        for file, data in files.items():
            if (staging / file).read_bytes() != data:
                raise OSError(0, f"{file} is not read back as it was written")
        staging.rename(target)
        sync_folder(folder)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise UserError(
            f"{target}: the checkpoint could not be saved: {error.strerror}; earlier ones are unchanged"
        ) from error
    for old in _newest_first(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def load_newest(folder: Path, *, read: Callable[[Checkpoint, str], Content]) -> tuple[Content | None, list[str]]:
    """Return the newest intact checkpoint (None if there never was one) and a warning for each damaged one.

    `read` turns a checkpoint and its name into what is returned; its UserError counts as damage too, but not its
    OtherRunError. Damaged ones are renamed to damaged-NAME if an earlier one is intact. UserError when none is.
    """
    _refuse_links(folder)
    damaged: dict[Path, str] = {}
    for path in _newest_first(folder):
        try:
            found = read(_load(path), path.name)
        except OtherRunError:
            raise
        except UserError as error:
            damaged[path] = str(error)
            continue
        for broken in damaged:
            kept = broken.with_name(f"{DAMAGED}{broken.name}")
            shutil.rmtree(kept, ignore_errors=True)
            broken.rename(kept)
        return found, [
            f"checkpoint {path} is damaged ({why}): using the previous checkpoint" for path, why in damaged.items()
        ]
    reasons = [f"{path.name} ({why})" for path, why in damaged.items()]
    reasons += sorted(path.name for path in _folders(folder) if SET_ASIDE.fullmatch(path.name))
    if reasons:
        raise UserError(
            f"{show_path(folder)}: no checkpoint is intact; damaged are {', '.join(reasons)}; "
            "delete the folder to start the run again"
        )
    return None, []


def remove_partial(folder: Path) -> None:
    """Delete the temporary folders of interrupted saves."""
    for path in _folders(folder):
        if PARTIAL.fullmatch(path.name):
            shutil.rmtree(path)


def newest(folder: Path) -> str | None:
    """Return the name of the newest checkpoint in `folder`; None if there is none."""
    return next((path.name for path in _newest_first(folder)), None)


def copy_weights(model: Pretrained) -> dict[str, Tensor]:
    """Return a copy of all weights on the CPU."""
    return {name: whole(tensor.detach()).to("cpu", copy=True) for name, tensor in model.tensors().items()}


def check_weights(model: Pretrained, tensors: Tensors, *, where: str = "weights") -> None:
    """UserError for a tensor that is missing, unknown, not finite, or not of the model's shape and type."""
    expected = model.tensors()
    for problem, names in (("missing", expected.keys() - tensors), ("unknown", tensors.keys() - expected)):
        if names:
            raise UserError(f"{where}: {problem} tensor {min(names)}")
    for name, tensor in expected.items():
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise UserError(
                f"{where}: {name} is {tuple(found.shape)} {found.dtype}, expected {tuple(tensor.shape)} {tensor.dtype}"
            )
        if found.is_floating_point() and not bool(found.isfinite().all()):
            raise UserError(f"{where}: {name} is not finite")


def load_weights(model: Pretrained, tensors: Tensors) -> None:
    """Copy `tensors` into the model after `check_weights`."""
    check_weights(model, tensors)
    for name, tensor in model.tensors().items():
        tensor.detach().copy_(divided_as(tensor, tensors[name]))


def _load(path: Path) -> Checkpoint:
    """Read a checkpoint; UserError for any damage, OSError where it is the system that refuses."""
    for entry in path.iterdir():
        if not os.access(entry, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(entry))
    entries = read_manifest(path)
    if STATE not in entries:
        raise UserError(f"{show_path(path / MANIFEST)}: {STATE} is missing; it lists {listed(sorted(entries))}")
    contents = {file: read_listed(path / file, entry) for file, entry in entries.items()}
    state = decode_json(contents.pop(STATE), where=show_path(path / STATE))
    tensors = {}
    for file, data in contents.items():
        try:
            tensors[file.removesuffix(".safetensors")] = safetensors.torch.load(data)
        except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
            why = show(str(error))
            raise UserError(f"{show_path(path / file)}: not a readable safetensors file ({why})") from error
    return Checkpoint(tensors=tensors, state=state)


def _refuse_links(folder: Path) -> None:
    """UserError if `folder`, or what has the name of a checkpoint in it, is no folder but a link or anything else."""
    refuse_link(folder, folder=True)
    for path in folder.iterdir() if folder.exists() else []:
        if NAME.fullmatch(path.name):
            refuse_link(path, folder=True)


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in _folders(folder) if NAME.fullmatch(path.name)), reverse=True)


def _folders(folder: Path) -> list[Path]:
    """Return the folders in `folder`, without links to folders."""
    return [path for path in folder.iterdir() if is_real_folder(path)] if folder.exists() else []
