"""Runs of a table side by side on Ray: on this machine's cores and GPUs, or on a cluster (extra `ray`).

A run is one task of Ray: it trains in its run folder, which all machines must see, and sends its result back. Only the
caller writes results, so a worker that dies in the middle loses no line and doubles none: Ray gives its run to another
worker, which goes on from the last checkpoint.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.recipes.reproduce import Maker
from universal_transformer.recipes.results import Result, check
from universal_transformer.recipes.runs import Planned, Stop, Unfinished, Workshop
from universal_transformer.training.config import RunConfig
from universal_transformer.training.provenance import checkout

RETRIES = 3
"""How often a run whose worker died is given to another one."""
PATIENCE = 30.0
"""Seconds that interrupted workers have to save."""


def on_ray(address: str = "") -> Maker:
    """Return what makes runs on the cluster at `address`, or on this machine."""
    return partial(_make_all, address=address)


def _make_all(
    todo: Sequence[Planned], workshop: Workshop, *, address: str
) -> Iterator[tuple[Planned, Result | UserError]]:
    ray = _import()
    if not todo:
        return
    todo[0].config.data.load()  # data that are missing are said here, and once
    ray.init(address=address or None, log_to_driver=False, include_dashboard=False if not address else None)
    try:
        yield from _gather(ray, todo, workshop)
    finally:
        ray.shutdown()


def _gather(
    ray: Any, todo: Sequence[Planned], workshop: Workshop
) -> Iterator[tuple[Planned, Result | UserError]]:
    device = {"num_gpus": 1} if ray.cluster_resources().get("GPU") else {}
    waiting = {}
    for run in todo:
        cores = max(1, run.config.training.threads)
        task = ray.remote(_make).options(num_cpus=cores, max_retries=RETRIES, name=run.name, **device)
        waiting[task.remote(_job(run, workshop))] = run
    workshop.say(f"{len(todo)} runs on Ray: {_resources(ray.cluster_resources())}")
    stopped: Stop | None = None
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
            for reference in done:
                run = waiting.pop(reference)
                found = _answer(ray, reference, table=workshop.table.name)
                if isinstance(found, str):
                    stopped = found
                else:
                    yield run, found
    except KeyboardInterrupt:
        for reference in waiting:
            ray.cancel(reference)  # as a Ctrl-C of its own: it saves
        ray.wait(list(waiting), num_returns=len(waiting), timeout=PATIENCE)
        stopped = "interrupted"
    if stopped is not None:
        raise Unfinished(stopped)


def _answer(ray: Any, reference: Any, *, table: str) -> Result | UserError | Stop:
    try:
        answer = ray.get(reference)
    except ray.exceptions.RayError as error:
        return UserError(f"its worker failed: {' '.join(str(error).split())[-300:]}")
    if "error" in answer:
        return UserError(answer["error"])
    if "stopped" in answer:
        stop: Stop = answer["stopped"]
        return stop
    return check(answer["result"], where="a result from Ray", table=table)


def _job(run: Planned, workshop: Workshop) -> dict[str, Any]:
    """All that a worker needs, as plain values."""
    return {
        "table": workshop.table.name,
        "row": run.row,
        "config": run.config.to_dict(),
        "runs": str(workshop.runs.resolve()),
        "data": str(Path(os.environ.get("UT_DATA") or "data").resolve()),
        "until": time.time() + min(workshop.rest, 1e9),
    }


def _make(job: Mapping[str, Any]) -> dict[str, Any]:
    """Make one run, in a worker; what came of it as plain values."""
    from universal_transformer.recipes.tables import find_table

    checkout()
    os.environ["UT_DATA"] = job["data"]
    workshop = Workshop(
        table=find_table(job["table"]),
        runs=Path(job["runs"]),
        say=print,
        quiet=True,
        until=time.monotonic() + job["until"] - time.time(),
    )
    run = Planned(job["row"], RunConfig.from_dict(job["config"]))
    try:
        if workshop.rest <= 0:
            raise Unfinished("budget")
        return {"result": dataclasses.asdict(workshop.make(run, task=run.config.data.load()))}
    except UserError as error:
        return {"error": str(error)}
    except Unfinished as unfinished:
        return {"stopped": unfinished.reason}


def _resources(found: Mapping[str, float]) -> str:
    return ", ".join(f"{found[name]:g} {name}" for name in ("CPU", "GPU") if found.get(name))


def _import() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError("--ray needs Ray: run pip install 'universal-transformer[ray]'") from error
    return ray
