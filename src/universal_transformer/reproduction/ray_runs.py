"""Runs of a table in parallel on Ray: on this machine's cores and GPUs, or on a cluster (extra `ray`).

A run is one task of Ray: it trains in its run folder, which all machines must share, and sends its result back. If a
worker fails during a run, Ray gives the run to another worker, which continues from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.reproduction.results import Result
from universal_transformer.reproduction.runs import PlannedRun, Runner, Stop, Unfinished
from universal_transformer.reproduction.workers import answer_of, job_of, work

RETRIES = 3
"""How often a run whose worker failed is given to another one."""
PATIENCE = 30.0
"""Seconds in which interrupted workers must save."""


def on_ray(
    todo: Sequence[PlannedRun], runner: Runner, *, address: str
) -> Iterator[tuple[PlannedRun, Result | UserError]]:
    """Make runs on the cluster at `address`, or on this machine if it is empty."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--ray needs Ray: run pip install 'universal-transformer[ray]'") from error
    if not todo:
        return
    todo[0].config.data.load()  # missing data are reported here, once
    ray.init(address=address or None, log_to_driver=False, include_dashboard=False if not address else None)
    try:
        yield from _gather(ray, todo, runner)
    finally:
        ray.shutdown()


def _gather(ray: Any, todo: Sequence[PlannedRun], runner: Runner) -> Iterator[tuple[PlannedRun, Result | UserError]]:
    resources = ray.cluster_resources()
    device = {"num_gpus": 1} if resources.get("GPU") else {}
    waiting = {}
    for run in todo:
        cores = max(1, run.config.training.threads)
        task = ray.remote(work).options(num_cpus=cores, max_retries=RETRIES, name=run.name, **device)
        waiting[task.remote(job_of(run, runner))] = run
    cluster = ", ".join(f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name))
    runner.say(f"{len(todo)} runs on Ray: {cluster}")
    stopped: Stop | None = None
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
            for reference in done:
                run = waiting.pop(reference)
                try:
                    found = answer_of(ray.get(reference), table=runner.table.name)
                except ray.exceptions.RayError as error:
                    found = UserError(f"its worker failed: {' '.join(str(error).split())[-300:]}")
                if isinstance(found, str):
                    stopped = found
                else:
                    yield run, found
    except KeyboardInterrupt:
        for reference in waiting:
            ray.cancel(reference)  # the worker is interrupted, and saves
        ray.wait(list(waiting), num_returns=len(waiting), timeout=PATIENCE)
        stopped = "interrupted"
    if stopped is not None:
        raise Unfinished(stopped)
