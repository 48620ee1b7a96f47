"""F1: model folders with a mutated file, opened and asked in a process whose every outside action is recorded.

The mutations are those of `cli.test_damaged_models`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cli.test_damaged_models import DATA, answer, damaged, make_run, refusal
from torture.outcome import Outcome
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.registry import load_pretrained
from universal_transformer.tasks.codec import Codec

CASES = 10_000
GROUP = 100
"""Cases of one process."""
SECONDS = 2.0
"""Processor time of a case."""
HANGS = 60
"""Seconds after which a case that waits is ended by a signal."""
MEMORY = 200 * 2**20
OUTSIDE = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "pickle.", "ctypes.dlopen",
           "marshal.load", "shutil.", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link",
           "os.symlink", "os.truncate", "urllib.", "ftplib.", "webbrowser.")  # fmt: skip
READ_ONLY = (
    sys.prefix,
    sys.base_prefix,
    str(Path(__file__).parents[2] / "src"),
    "/proc/",
    "/sys/",
    "/dev/null",
    "/etc/",
)
"""Places from which Python and torch read what they need."""


class Guard:
    """Records what a process does besides reading a folder, while it is armed."""

    def __init__(self, folder: Path) -> None:
        self.allowed, self.armed = (str(folder), *READ_ONLY), False
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = isinstance(mode, str) and set("wax+") & set(mode)
            writes = writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            inside = isinstance(path, int) or os.fsdecode(path).startswith(self.allowed)  # type: ignore[arg-type]
            if writes or not inside:
                self.seen.append(f"open {path!r}")
        elif event.startswith(OUTSIDE):
            self.seen.append(f"{event} {arguments!r:.80}")


def mutated(share: float, folder: Path) -> Outcome:
    """F1: no traceback, no end by a signal, no long case, no memory, and nothing outside of the folder."""
    (runs := folder / "runs").mkdir()
    for name in DATA:
        make_run(runs / name, name)
    outcome, cases = Outcome(), round(CASES * share)
    for name, (_, line) in DATA.items():  # loads all modules into this process
        assert isinstance(answer(runs / name, line), str)
    valid, problems = watched([*DATA], folder, lambda name: partial(ask, runs / name, DATA[name][1]))
    assert not problems, problems
    largest = valid
    for first in range(0, cases, GROUP):
        numbers = [str(number) for number in range(first, min(first + GROUP, cases))]
        memory, problems = watched(numbers, folder, lambda number: ask_damaged(int(number), runs, folder / "run"))
        largest = max(largest, memory)
        for number in numbers:
            outcome.add(f"case {number}", problems.get(number, []))
    if largest > 2 * valid + MEMORY:
        outcome.failures.append(f"{largest / 2**20:.0f} MiB of memory, sound folders {valid / 2**20:.0f}")
    outcome.notes.append(f"at most {largest / 2**20:.0f} MiB of memory, of sound folders {valid / 2**20:.0f}")
    return outcome


def ask(folder: Path, line: str) -> list[object]:
    """Return what the ways to open the run in `folder` give: an answer, models and codecs, or errors of users."""
    return [answer(folder, line), *(refusal(load, folder / "model") for load in (load_pretrained, Codec.load))]


def ask_damaged(number: int, runs: Path, folder: Path) -> Callable[[], list[object]]:
    """Damage a copy of a run; return the function that asks it."""
    shutil.rmtree(folder, ignore_errors=True)
    name, path, wrong = damaged(number, runs, folder)

    def checked() -> list[object]:
        found = ask(folder, DATA[name][1])
        if wrong and not isinstance(found[0], UserError):
            raise AssertionError(f"{path.name} of {name} was loaded")
        return found

    return checked


def watched(
    cases: list[str], folder: Path, prepare: Callable[[str], Callable[[], list[object]]]
) -> tuple[int, dict[str, list[str]]]:
    """Try cases in a forked process; return its memory in bytes, and what is wrong by case."""
    read, write = os.pipe()
    if not (pid := os.fork()):
        os.close(read)
        code = 1
        try:
            guard = Guard(folder)
            for case in cases:
                os.write(write, f"{case}\n".encode())
                for problem in tried(prepare, case, guard):
                    os.write(write, f"{case}\t{show(problem, limit=300)}\n".encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as stream:
        lines = [line.rstrip("\n").split("\t") for line in stream]
    _, status, used = os.wait4(pid, 0)
    problems: dict[str, list[str]] = {}
    for case, *found in lines:
        problems.setdefault(case, []).extend(found)
    if (code := os.waitstatus_to_exitcode(status)) != 0:
        last = lines[-1][0]
        problems[last].append(f"the process ended with {code}")
        for case in cases[cases.index(last) + 1 :]:
            problems[case] = ["not reached"]
    return used.ru_maxrss * 1024, {case: found for case, found in problems.items() if found}


def tried(prepare: Callable[[str], Callable[[], list[object]]], case: str, guard: Guard) -> list[str]:
    """Return what is wrong with a case."""
    work = prepare(case)
    guard.seen, guard.armed = [], True
    signal.alarm(HANGS)  # ends the process
    began, problems = time.process_time(), []
    try:
        found = work()
        problems += [
            f"not one line: {one}" for one in found if isinstance(one, UserError) and not str(one).isprintable()
        ]
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    signal.alarm(0)
    guard.armed = False
    if (seconds := time.process_time() - began) > SECONDS:
        problems.append(f"{seconds:.1f} s")
    return problems + guard.seen
