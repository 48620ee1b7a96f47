"""T1, T2: a run that is killed, or whose disk fails, at any moment, goes on as if nothing had been."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torture.children import DELETIONS, Ended, kill_self, limit_files, watch
from torture.outcome import Outcome
from torture.runs import SmallRun, differences, import_all

KILLS = 200
SHORT = {"training__max_updates": 3, "training__validate_every": 2}
"""A run of which every file operation is tried."""
SIZES = (0, 1, 100, 500, 1_000, 2_000, 3_000, 5_000, 8_000, 12_000, 20_000, 30_000)
"""Bytes of a file after which a write ends: in the JSON files, and in those of tensors."""
DISKS = (16, 32, 48, 64, 96, 128, 192, 256, 320, 400)
"""Sizes of a disk in KiB."""


def killed(share: float, folder: Path) -> Outcome:
    """T1: SIGKILL at random moments, before each file operation, and in the middle of writes."""
    import_all(folder / "first")
    outcome, draw, run, moments = Outcome(), random.Random(0), SmallRun(folder), 0
    whole, seconds = undisturbed(folder / "whole")
    while moments < KILLS * share:
        run.clear()
        child = run.start()
        time.sleep(draw.uniform(0, seconds))
        os.kill(child.pid, signal.SIGKILL)
        if child.wait().code == -signal.SIGKILL:  # else it had ended before
            moments += 1
            outcome.add(f"kill {moments}", resumed(run, whole))
    run, (short, _) = SmallRun(folder, **SHORT), undisturbed(folder / "short", **SHORT)
    operations = file_operations(folder)
    for number, kind in chosen(operations, share):
        run.clear()
        ended = run.train(at_operation(run, number, kill_self))
        problems = [] if ended.code == -signal.SIGKILL else [f"exit code {ended.code}"]
        outcome.add(f"kill before operation {number} ({kind})", problems or resumed(run, short))
    for _, size in chosen(SIZES, share):
        run.clear()
        ended = run.train(lambda size=size: limit_files(size, deadly=True))
        problems = [] if ended.code in (-signal.SIGXFSZ, 0) else [f"exit code {ended.code}"]
        outcome.add(f"end in a write after {size} bytes", problems or resumed(run, short))
    outcome.notes.append(f"{moments} random moments; a run of 3 updates has {len(operations)} file operations")
    return outcome


def refused(share: float, folder: Path) -> Outcome:
    """T2: no space, an I/O error or a read-only folder, at each file operation and in writes: exit 2 with one line."""
    import_all(folder / "first")
    outcome, run = Outcome(), SmallRun(folder, **SHORT)
    short, _ = undisturbed(folder / "short", **SHORT)
    operations = file_operations(folder)
    for number, kind in chosen(operations, share):
        run.clear()
        code = (errno.ENOSPC, errno.EIO)[number // max(1, round(1 / share)) % 2]
        ended = run.train(at_operation(run, number, lambda code=code: fail(code)))
        name = f"{errno.errorcode[code]} at operation {number} ({kind})"
        # what cannot be deleted is kept, and does not end a run
        outcome.add(name, one_line(ended, may_end=kind in DELETIONS) + resumed(run, short))
    for _, size in chosen(SIZES, share):
        run.clear()
        ended = run.train(lambda size=size: limit_files(size, deadly=False))
        outcome.add(f"a write refused after {size} bytes", one_line(ended, may_end=True) + resumed(run, short))
    outcome.notes.append(f"a run of 3 updates has {len(operations)} file operations")
    if not may_mount(folder):
        outcome.notes.append("a disk of its own was not tried: no right to mount")
        return outcome
    for _, kilobytes in chosen(DISKS, share):
        with disk(folder / "disk", kilobytes) as place:
            run = SmallRun(place, **SHORT)
            ended = one_line(run.train(), may_end=kilobytes > DISKS[-3])
            mount("-o", "remount,size=10m", str(place))
            outcome.add(f"a full disk of {kilobytes} KiB", ended + resumed(run, short))
    with disk(folder / "disk", 10_000) as place:
        run = SmallRun(place, **SHORT)
        run.train(at_operation(run, len(operations) // 2, kill_self))
        mount("-o", "remount,ro", str(place))
        outcome.add("a read-only folder", one_line(run.train(), may_end=False))
        mount("-o", "remount,rw", str(place))
        outcome.add("the same folder, writable again", resumed(run, short))
    return outcome


def chosen(items: list, share: float) -> list[tuple[int, object]]:
    """Return a share of the items, evenly spread, each with its number from 1."""
    return list(enumerate(items, start=1))[:: max(1, round(1 / share))]


def undisturbed(folder: Path, **changes: object) -> tuple[SmallRun, float]:
    """Return a run that nothing disturbed, and the seconds that it took."""
    folder.mkdir()
    run, began = SmallRun(folder, **changes), time.monotonic()
    ended = run.train()
    assert ended.code == 0, ended.errors
    return run, time.monotonic() - began


def file_operations(folder: Path) -> list[str]:
    """Return the kinds of the file operations of the short run, in their order."""
    run, log = SmallRun(folder, **SHORT), folder / "operations"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    run.clear()
    ended = run.train(lambda: watch(run.folder, lambda kind, _: os.write(descriptor, f"{kind}\n".encode())))
    os.close(descriptor)
    assert ended.code == 0, ended.errors
    return log.read_text().split()


def at_operation(run: SmallRun, number: int, fault: Callable[[], object]) -> Callable[[], None]:
    """Return what makes `fault` happen before the operation of this number."""
    return lambda: watch(run.folder, lambda _, count: fault() if count == number else None)


def fail(code: int) -> None:
    """Fail as an operation of the system does."""
    raise OSError(code, os.strerror(code))


def one_line(ended: Ended, *, may_end: bool) -> list[str]:
    """Return what is wrong with the end of a command whose disk failed; `may_end`: it may have had no need of it."""
    if ended.code == 0 and may_end:
        return []
    problems = [] if ended.code == 2 else [f"exit code {ended.code}"]
    lines = ended.errors.splitlines()
    return problems + ([] if len(lines) == 1 and lines[0].startswith("ut: ") else [f"said {ended.errors[-300:]!r}"])


def resumed(run: SmallRun, whole: SmallRun) -> list[str]:
    """Continue a run, or begin it again if there is nothing of it; return what is wrong then."""
    try:
        before = run.last_update()
        ended = run.train()
        if ended.code:
            return [f"unreadable: exit code {ended.code}, {ended.errors[-300:]!r}"]
        lost = before - run.resumed_after()
        # the line of the metrics is written in the update, and the checkpoint before the next one
        return differences(run, whole) + ([f"{lost} updates lost"] if lost > 1 else [])
    except (OSError, ValueError) as error:
        return [f"unreadable: {error}"]


def mount(*arguments: str) -> bool:
    """Call mount; return whether it could."""
    program = shutil.which("mount")
    return (
        program is not None and not subprocess.run([program, *arguments], capture_output=True, check=False).returncode
    )


def may_mount(folder: Path) -> bool:
    """Return whether this process may make disks."""
    (probe := folder / "probe").mkdir()
    if may := mount("-t", "tmpfs", "-o", "size=16k", "tmpfs", str(probe)):
        subprocess.run(["umount", str(probe)], check=True)
    return may


@contextmanager
def disk(place: Path, kilobytes: int) -> Iterator[Path]:
    """Make a disk of a size at a place, while inside."""
    place.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
