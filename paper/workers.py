"""Runs in processes of their own: what a worker is given, what it returns, and K processes on this machine.

Only the caller writes results. A worker trains in its run folder, so that a worker that is killed loses no line: the
next call continues from the last checkpoint.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from paper.results import Result, check
from paper.runs import PlannedRun, Runner, Stop, Unfinished
from paper.tables import find_table
from universal_transformer.errors import UserError
from universal_transformer.training.config import RunConfig
from universal_transformer.training.interruption import stop_on_signals
from universal_transformer.training.provenance import code_in_use

POLL_SECONDS = 0.2


def job_of(run: PlannedRun, runner: Runner) -> dict[str, Any]:
    """Return all that a worker needs, as plain values."""
    return {
        "table": runner.table.name,
        "row": run.row,
        "config": run.config.to_dict(),
        "runs": str(runner.runs.resolve()),
        "data": str(Path(os.environ.get("UT_DATA") or "data").resolve()),
        "until": time.time() + min(runner.rest, 1e9),
    }


def work(job: Mapping[str, Any]) -> dict[str, Any]:
    """Make one run, in a worker; return its result, error or reason to stop as plain values."""
    code_in_use()
    os.environ["UT_DATA"] = job["data"]
    runner = Runner(
        table=find_table(job["table"]),
        runs=Path(job["runs"]),
        say=print,
        quiet=True,
        until=time.monotonic() + job["until"] - time.time(),
    )
    run = PlannedRun(job["row"], RunConfig.from_dict(job["config"]))
    try:
        if runner.rest <= 0:
            raise Unfinished("budget")
        return {"result": dataclasses.asdict(runner.make(run, task=run.config.data.load()))}
    except UserError as error:
        return {"error": str(error)}
    except Unfinished as unfinished:
        return {"stopped": unfinished.reason}
    except KeyboardInterrupt:
        return {"stopped": "interrupted"}


def answer_of(found: Mapping[str, Any], *, table: str) -> Result | UserError | Stop:
    """Undo the plain values of `work`."""
    if "error" in found:
        return UserError(found["error"])
    if "stopped" in found:
        stop: Stop = found["stopped"]
        return stop
    return check(found["result"], where="a result of a worker", table=table)


def in_processes(
    todo: Sequence[PlannedRun], runner: Runner, *, count: int
) -> Iterator[tuple[PlannedRun, Result | UserError]]:
    """Make up to `count` runs at a time on this machine, each in its own process."""
    if not todo:
        return
    todo[0].config.data.load()  # missing data are reported here, once
    waiting, running = list(todo), dict[Connection, tuple[PlannedRun, Any]]()
    stopped: Stop | None = None
    least = runner.shortest
    with stop_on_signals() as stop:
        try:
            while running or (waiting and stopped is None):
                while waiting and len(running) < count and stopped is None:
                    if runner.rest < least:
                        stopped = "budget"
                        break
                    run = waiting.pop(0)
                    runner.say(f"[{len(todo) - len(waiting)}/{len(todo)}] {run.name}: {run.limit}")
                    connection, process = _start(run, runner)
                    running[connection] = run, process
                for ready in wait(list(running), timeout=POLL_SECONDS):
                    assert isinstance(ready, Connection)
                    run, process = running.pop(ready)
                    found = _receive(ready, process, table=runner.table.name)
                    if isinstance(found, str):
                        stopped = found
                    else:
                        yield run, found
                if stop() and stopped != "interrupted":
                    stopped = "interrupted"
                    for connection in running:
                        with suppress(OSError):
                            connection.send("stop")
        finally:
            for _, process in running.values():  # after a second Ctrl-C
                process.kill()
    if stopped is not None:
        raise Unfinished(stopped)


def _start(run: PlannedRun, runner: Runner) -> tuple[Connection, Any]:
    context = multiprocessing.get_context("spawn")
    connection, other_end = context.Pipe()
    process = context.Process(target=_serve, args=(other_end, job_of(run, runner)), name=run.name)
    process.start()
    other_end.close()
    return connection, process


def _serve(connection: Connection, job: Mapping[str, Any]) -> None:
    """Run in the worker: make the run and send what came of it."""
    os.setpgrp()  # a Ctrl-C of the terminal goes to the caller only, which asks the worker to stop
    made = threading.Event()
    threading.Thread(target=_stop_on_request, args=(connection, made), daemon=True).start()
    found = work(job)
    made.set()
    with suppress(OSError):
        connection.send(found)


def _stop_on_request(connection: Connection, made: threading.Event) -> None:
    """Interrupt this process when the caller asks for it, or has ended; not after the run is `made`."""
    with suppress(EOFError, OSError):
        connection.recv()
    if not made.is_set():  # the caller closes its end as soon as it has the result
        os.kill(os.getpid(), signal.SIGINT)


def _receive(connection: Connection, process: Any, *, table: str) -> Result | UserError | Stop:
    found = None
    with connection, suppress(EOFError, OSError):
        found = connection.recv()
    process.join()
    if found is None:
        return UserError(f"its process ended without a result (exit code {process.exitcode})")
    return answer_of(found, table=table)
