"""Checkpoints, written completely or not at all: tensors as safetensors, scalars as JSON, a SHA-256 of every file.

A save writes a temporary folder next to the target, syncs it, reads it back, renames it, syncs the parent, and only
then deletes older checkpoints. Loading accepts only files that agree with the manifest.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError
from universal_transformer.files import encode_json, read_json, sync_folder, write_synced
from universal_transformer.models.pretrained import Pretrained

FORMAT = 1
MANIFEST = "manifest.json"
STATE = "state.json"
KEPT = 2

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run: `tensors` by file name (without .safetensors) and name, `state` as plain JSON."""

    tensors: Mapping[str, Tensors]
    state: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, *, name: str) -> Path:
    """Write `checkpoint` as `folder`/`name`, then delete all but the newest `KEPT`; names sort by age.

    Raises UserError when the disk cannot store it; earlier checkpoints stay unchanged.
    """
    staging, target = folder / f".{name}.partial", folder / name
    try:
        folder.mkdir(exist_ok=True)
        remove_partial(folder)
        staging.mkdir()
        files = {
            f"{part}.safetensors": safetensors.torch.save({name: one.contiguous() for name, one in tensors.items()})
            for part, tensors in checkpoint.tensors.items()
        }
        files[STATE] = encode_json(checkpoint.state)
        hashes = {file: _entry(data) for file, data in files.items()}
        files[MANIFEST] = encode_json({"format": FORMAT, "files": hashes})
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


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest intact checkpoint (None if there never was one) and a warning for each damaged one.

    Damaged ones are renamed to damaged-NAME. Raises UserError when none is intact.
    """
    warnings: list[str] = []
    for path in _newest_first(folder):
        try:
            return _load(path), warnings
        except (OSError, UserError, SafetensorError) as error:
            warnings.append(f"checkpoint {path} is damaged ({error}): using the one before")
            damaged = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(damaged, ignore_errors=True)
            path.rename(damaged)
    if names := sorted(path.name for path in folder.glob("damaged-*")):
        raise UserError(
            f"{folder}: no checkpoint is sound, all are damaged ({', '.join(names)}); "
            "delete the folder to start the run again"
        )
    return None, warnings


def remove_partial(folder: Path) -> None:
    """Delete the temporary folders of interrupted saves."""
    for path in folder.glob(".*.partial"):
        shutil.rmtree(path)


def copy_weights(model: Pretrained) -> dict[str, Tensor]:
    """Return a copy of all weights on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.tensors().items()}


def load_weights(model: Pretrained, tensors: Tensors) -> None:
    """Copy `tensors` into the model; a missing, unknown or wrongly shaped one is a UserError that names it."""
    expected = model.tensors()
    for problem, names in (("missing", expected.keys() - tensors), ("unknown", tensors.keys() - expected)):
        if names:
            raise UserError(f"weights: {problem} tensor {min(names)}")
    for name, tensor in expected.items():
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise UserError(
                f"weights: {name} is {tuple(found.shape)} {found.dtype}, expected {tuple(tensor.shape)} {tensor.dtype}"
            )
    for name, tensor in expected.items():
        tensor.detach().copy_(tensors[name])


def _load(path: Path) -> Checkpoint:
    manifest = read_json(path / MANIFEST)
    if manifest.keys() != {"format", "files"} or not isinstance(manifest["files"], dict):
        raise UserError(f"{MANIFEST}: expected format and files, found {', '.join(sorted(manifest))}")
    if manifest["format"] != FORMAT:
        raise UserError(f"{MANIFEST}: format {manifest['format']!r}, this version reads {FORMAT}")
    files = manifest["files"]
    found = {entry.name for entry in path.iterdir()} - {MANIFEST}
    if found != files.keys() or STATE not in found:
        raise UserError(f"files are {sorted(found)}, {MANIFEST} lists {sorted(files)}")
    tensors = {}
    for file, entry in files.items():
        data = (path / file).read_bytes()
        if entry != _entry(data):
            raise UserError(f"{file}: its SHA-256 is not the one in {MANIFEST}")
        if file != STATE:
            tensors[file.removesuffix(".safetensors")] = safetensors.torch.load(data)
    return Checkpoint(tensors=tensors, state=read_json(path / STATE))


def _newest_first(folder: Path) -> list[Path]:
    paths = [path for path in folder.glob("[!.]*") if path.is_dir()]
    return sorted((path for path in paths if not path.name.startswith("damaged-")), reverse=True)


def _entry(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
