"""The run folder: one writer at a time, and continued only by the run that it belongs to."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from universal_transformer.errors import UserError
from universal_transformer.files import (
    is_real_folder,
    open_regular,
    quoted,
    refuse_link,
    show_path,
    sync_folder,
    write_bytes,
    write_synced,
    write_text,
)
from universal_transformer.manifest import MANIFEST, encode_manifest, entry_of
from universal_transformer.models.pretrained import Pretrained
from universal_transformer.tasks.task import Codec, HeldOut, held_out_file
from universal_transformer.training.changes import check_accepted, configuration_changes, schedule_jumps
from universal_transformer.training.config import (
    BASELINE,
    CHECKPOINTS,
    CONFIG,
    HELD_OUT,
    METRICS,
    MODEL,
    REPORT,
    RunConfig,
)

LOCK = ".lock"
TENSORBOARD = "tensorboard"
PARTS = {
    **dict.fromkeys((LOCK, CONFIG, METRICS, BASELINE), False),
    **dict.fromkeys((CHECKPOINTS, MODEL, TENSORBOARD, HELD_OUT), True),
}
"""What training writes in a run folder -> whether it is a folder."""
REPORTS = (REPORT, "report-*.json", "report.html")
"""Files that evaluating and plotting write about the model in the folder."""
NEW_MODEL, OLD_MODEL = f".{MODEL}.partial", f".{MODEL}.old.partial"
"""The folder of a model that is being written, and the one before while it is replaced."""
NEW_HELD_OUT = f".{HELD_OUT}.partial"
STAGED = re.compile(
    r"\.((config|baseline|calibration)\.json|metrics\.jsonl|report(-[^/]*)?\.json|report\.html)(\.[a-z0-9_]{8})?\.partial"
)
"""Names of temporary files of a run folder, which `files.write_bytes` gives."""


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
        if folder.exists() and not (folder.is_dir() and _is_empty(folder)):
            begun = f": continue it (ut train --resume {quoted(folder)}) or choose another"
            what = begun if (folder / CONFIG).is_file() else ", and no run: choose another"
            raise UserError(f"{folder} is there already{what}")
        return []
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} has no run to continue: {CONFIG} is missing")
    check_parts(folder)
    saved = RunConfig.load(folder / CONFIG)
    found = configuration_changes(saved, config, accepted=accepted, where=show_path(folder))
    return [*found.values(), *schedule_jumps(saved.training, config.training)]


def _is_empty(folder: Path) -> bool:
    # a run killed before its configuration was written leaves only these two
    names = {path.name for path in folder.iterdir()} - {LOCK}
    return all(name.startswith(f".{CONFIG}.") and STAGED.fullmatch(name) for name in names)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process, and clean up after a killed one; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = open_regular(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        holder = os.pread(descriptor, 20, 0)
        if not re.fullmatch(rb"[0-9]*\n?", holder):
            raise UserError(f"{show_path(folder / LOCK)}: not the lock file of a run; rename it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            process = holder.decode().strip() or "unknown"
            raise UserError(f"{show_path(folder)} is being written by another process ({process})") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        _clean(folder)
        yield
    finally:
        os.close(descriptor)


def check_parts(folder: Path) -> None:
    """UserError if anything that training writes in `folder` is there as a link, or as something else than it writes.

    Nothing is written through a link: what it names may belong to somebody else, and a save replaces whole folders.
    """
    for name, is_folder in PARTS.items():
        try:
            refuse_link(folder / name, folder=is_folder)
        except UserError as error:
            whole = "; to keep a run on another disk, link its whole folder" * (folder / name).is_symlink()
            raise UserError(f"{error}{whole}") from error


def _clean(folder: Path) -> None:
    """Delete what a killed save left, under names that only saves give; an earlier model gets its name back."""
    old = folder / OLD_MODEL
    if is_real_folder(old) and not (folder / MODEL).exists():
        old.rename(folder / MODEL)
    for path in folder.iterdir():
        if path.name in (NEW_MODEL, OLD_MODEL, NEW_HELD_OUT) and is_real_folder(path):
            shutil.rmtree(path)
        elif STAGED.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink()


def save_model(folder: Path, model: Pretrained, codec: Codec) -> Path:
    """Write `folder`/model, with a manifest, next to the old one, delete reports on the old one, and replace it.

    Raises UserError when the disk cannot store it; the earlier model and its reports are unchanged then.
    """
    target, staging, old = folder / MODEL, folder / NEW_MODEL, folder / OLD_MODEL
    refuse_link(target, folder=True)
    for path in (staging, old):
        shutil.rmtree(path, ignore_errors=True)
    try:
        staging.mkdir()
        model.save_pretrained(staging)
        codec.save(staging)
        entries = {}
        for path in sorted(staging.iterdir()):
            data = path.read_bytes()
            write_synced(path, data)
            entries[path.name] = entry_of(data)
        write_bytes(staging / MANIFEST, encode_manifest(entries))
        _replace_model(folder)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise UserError(
            f"{show_path(target)}: the model could not be saved: {error.strerror or error}; the last checkpoint has "
            f"its weights: free some space, then: ut train --resume {quoted(folder)}"
        ) from error
    return target


def _replace_model(folder: Path) -> None:
    target, staging, old = folder / MODEL, folder / NEW_MODEL, folder / OLD_MODEL
    for pattern in REPORTS:
        for stale in folder.glob(pattern):
            stale.unlink()
    if target.exists():
        target.rename(old)
    try:
        staging.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    sync_folder(folder)
    shutil.rmtree(old, ignore_errors=True)


def keep_held_out(folder: Path, rows: HeldOut) -> None:
    """Write the rows that were held out of the training file, unless the folder has them already."""
    target = folder / HELD_OUT
    if not rows or target.is_dir():
        return
    staging = folder / NEW_HELD_OUT
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    for part, found in rows.items():
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in found)
        write_text(held_out_file(staging, part), "".join(lines))
    staging.rename(target)
    sync_folder(folder)
