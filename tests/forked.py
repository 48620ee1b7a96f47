"""Python programs and `ut` in processes of their own that find torch and the library imported: they start at once.

A server of processes (the start method "forkserver" of multiprocessing) imports them once and forks itself for each
program, so that what a program changes (registries, signals, its folder) ends with it. Shapes are not checked there.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "__main__",
        "torch._dynamo",  # which the first optimizer imports
        "universal_transformer.runs.trainer",
        "universal_transformer.runs.opened",
        "universal_transformer.evaluation.pipeline",
        "paper",
        "forked",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a program left behind."""

    returncode: int
    stdout: str
    stderr: str


def start(
    *arguments: object,
    folder: Path | str = ".",
    files: Sequence[Path | str] = (os.devnull,) * 3,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> BaseProcess:
    """Begin a program, ``ut ...`` or ``SCRIPT.py ...``, in a folder, with further variables of its environment.

    `files` are its input, its output and its errors.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the server too: threads do not survive a fork
    environment = {**os.environ, **variables}
    process = SERVER.Process(target=_work, args=([*map(str, arguments)], Path(folder).absolute(), files, environment))
    process.start()
    return process


def run(*arguments: object, folder: Path | str = ".", given: str = "") -> Done:
    """Run a program, ``ut ...`` or ``SCRIPT.py ...``, in a folder, with the text `given` as its input."""
    with tempfile.TemporaryDirectory() as place:
        read, *written = files = [Path(place, name) for name in ("input", "output", "errors")]
        read.write_text(given, encoding="utf-8")
        process = start(*arguments, folder=folder, files=files)
        process.join()
        stdout, stderr = (path.read_text(encoding="utf-8") for path in written)
        return Done(returncode=process.exitcode, stdout=stdout, stderr=stderr)


def _work(arguments, folder, files, environment):
    """The program, in its process."""
    for number, path in enumerate(files):
        os.dup2(os.open(path, os.O_CREAT | (os.O_WRONLY if number else os.O_RDONLY)), number)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False) for number in range(3)
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores in what it runs beside itself
    os.environ.update(environment)
    os.fsync = lambda _: None  # what a test writes need not outlive a failure of power
    os.chdir(folder)
    sys.argv = arguments
    if arguments[0] == "ut":
        from universal_transformer.cli import main

        sys.exit(main(arguments[1:]))
    sys.path.insert(0, str(Path(arguments[0]).absolute().parent))
    runpy.run_path(arguments[0], run_name="__main__")
