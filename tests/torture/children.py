"""Commands in forked processes that share the imports of this one: killed, signalled, or with a disk that fails.

A kill ends a process, not the machine: what the system has in its memory reaches the disk. Loss of power is not tried.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from universal_transformer.cli import main
from universal_transformer.training.provenance import code_in_use

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DELETIONS = ("os.remove", "os.rmdir")
CHANGES = ("os.mkdir", "os.rename", "os.truncate", "os.chmod", *DELETIONS)

Fault = Callable[[str, int], None]
"""Called with the kind of a file operation and its number, before it is made."""


def watch(folder: Path, fault: Fault) -> None:
    """Call `fault` before every operation of this process that changes files in `folder`: it may raise or kill."""
    start, count, fsync = str(folder), 0, os.fsync

    def seen(kind: str) -> None:
        nonlocal count
        count += 1
        fault(kind, count)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = set("wax+") & set(mode) if isinstance(mode, str) else isinstance(flags, int) and flags & WRITING
            if writes and str(path).startswith(start):
                seen("open")
        elif event in CHANGES:
            path = arguments[0]
            if event == "os.mkdir" and os.path.isdir(path):
                return
            # of a folder that is deleted, the entries have relative names
            if not isinstance(path, str | Path) or not os.path.isabs(path) or str(path).startswith(start):
                seen(event)

    def synced(descriptor: int) -> None:
        seen("os.fsync")
        fsync(descriptor)

    sys.addaudithook(hook)
    os.fsync = synced


def limit_files(size: int, *, deadly: bool) -> None:
    """Let the system refuse to write more than `size` bytes to a file, or end this process in the middle of it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Its exit code; of a signal, the negative number of it."""
    errors: str
    """What it wrote to standard error."""


@dataclass(frozen=True)
class Running:
    """A command that runs in a forked process."""

    pid: int
    errors: int
    """Descriptor of its standard error."""

    def wait(self) -> Ended:
        """Wait for its end."""
        with os.fdopen(self.errors, errors="replace") as stream:
            said = stream.read()
        _, status = os.waitpid(self.pid, 0)
        return Ended(os.waitstatus_to_exitcode(status), said)


def start(arguments: list[str], *, before: Callable[[], None] = lambda: None) -> Running:
    """Start ``ut`` with these arguments in a forked process. `before` runs in it first."""
    code_in_use()  # asks git once for all of them
    read, write = os.pipe()  # no limit of size and no full disk concerns it
    if pid := os.fork():
        os.close(write)
        return Running(pid, read)
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(write, 2)
        os.close(write)
        before()
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def command(arguments: list[str], *, before: Callable[[], None] = lambda: None) -> Ended:
    """Run ``ut`` with these arguments in a forked process."""
    return start(arguments, before=before).wait()


def kill_self() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)
