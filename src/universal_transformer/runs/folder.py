"""The folder of a run: what its files are called, one writer at a time, and the model in it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.errors import UserError
from universal_transformer.files import new_folder, quoted, show_path, write_text
from universal_transformer.manifest import MANIFEST, MODEL, read_manifest, seal
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import HeldOut, held_out_file

if TYPE_CHECKING:
    from universal_transformer.models.pretrained import Pretrained

CONFIG = "config.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
REPORT = "report.json"
HELD_OUT = "held_out"
BASELINE = "baseline.json"
LOCK = ".lock"
"""What the files and folders of a run are called."""
REPORTS = (REPORT, "report-*.json", "report.html")
"""Files that evaluating and plotting write about the model in the folder."""
STAGED = re.compile(
    r"\.((config|baseline|calibration)\.json|metrics\.jsonl|report(-[^/]*)?\.json|report\.html)(\.[a-z0-9_]{8})?\.partial"
)
"""Names of temporary files of a run folder, which `files.write_bytes` gives."""
STAGED_FOLDER = re.compile(rf"\.({MODEL}|{HELD_OUT})(\.old)?\.partial")
"""Names of its temporary folders, which `files.new_folder` gives."""


def is_empty(folder: Path) -> bool:
    """Whether a new run may begin in a folder."""
    # a run killed before its configuration was written leaves only these two
    names = {path.name for path in folder.iterdir()} - {LOCK}
    return all(name.startswith(f".{CONFIG}.") and STAGED.fullmatch(name) for name in names)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process, and clean up after a killed one; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _locked(folder / LOCK, folder)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        _clean(folder)
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)
        os.close(descriptor)


def _locked(lock: Path, folder: Path) -> int:
    """Return the descriptor of a lock; UserError where another process has it."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), lock.stat()):
                    return descriptor
            os.close(descriptor)  # its owner has deleted it just now
        except BlockingIOError as error:
            process = os.pread(descriptor, 20, 0).decode().strip() or "unknown"
            os.close(descriptor)
            raise UserError(f"{show_path(folder)} is being written by another process ({process})") from error


def _clean(folder: Path) -> None:
    """Delete what a killed save left, under names that only saves give; an earlier model gets its name back."""
    old = folder / f".{MODEL}.old.partial"
    if old.is_dir() and not (folder / MODEL).exists():
        old.rename(folder / MODEL)
    for path in folder.iterdir():
        if STAGED_FOLDER.fullmatch(path.name):
            shutil.rmtree(path)
        elif STAGED.fullmatch(path.name):
            path.unlink()


def save_model(folder: Path, model: Pretrained, codec: Codec[Any, Any]) -> Path:
    """Write `folder`/model, with a manifest; reports on another one are deleted when it is whole.

    Raises UserError when the disk cannot store it; the earlier model is unchanged then.
    """
    target = folder / MODEL
    try:
        with new_folder(target) as staging:
            model.save_pretrained(staging)
            codec.save(staging)
            seal(staging)
            _keep_others(target, staging)
            for pattern in REPORTS * (not _same_files(target, staging)):
                for stale in folder.glob(pattern):
                    stale.unlink()
    except OSError as error:
        raise UserError(
            f"{show_path(target)}: the model could not be saved: {error.strerror or error}; the last checkpoint has "
            f"its weights: free some space, then: ut train --resume {quoted(folder)}"
        ) from error
    return target


def _same_files(target: Path, staging: Path) -> bool:
    try:
        return read_manifest(target) == read_manifest(staging)
    except (OSError, UserError):  # there is none, or it is damaged
        return False


def _keep_others(target: Path, staging: Path) -> None:
    """Take over what the user has put into the folder that is replaced: what its manifest does not list."""
    if not target.is_dir():
        return
    try:
        ours = {MANIFEST, *read_manifest(target)}
    except UserError:  # damaged: what the new one has is ours
        ours = set()
    for path in target.iterdir():
        if path.name in ours or (staging / path.name).exists():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, staging / path.name, symlinks=True)
        else:
            shutil.copy2(path, staging / path.name, follow_symlinks=False)


def keep_held_out(folder: Path, rows: HeldOut) -> None:
    """Write the rows that were held out of the training file, unless the folder has them already."""
    target = folder / HELD_OUT
    if not rows or target.is_dir():
        return
    with new_folder(target) as staging:
        for part, found in rows.items():
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in found)
            write_text(held_out_file(staging, part), "".join(lines))
