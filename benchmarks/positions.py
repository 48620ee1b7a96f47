"""``ut bench positions``: memory and time of each process that shares the positions of one sequence, against length.

Fixed depth, forward and backward pass, gloo, one thread a process. The memory is that of a pass: activations and
temporary tensors, without weights and their gradients.
"""

import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed, multiprocessing

from benchmarks.random_models import BenchmarkSizes, apply, encoder, inputs
from benchmarks.result import Measurement, Settings
from benchmarks.timing import peak_bytes
from universal_transformer.execution.context_parallel import make_context_parallel

SIZES = BenchmarkSizes(width=128, heads=4, filter_width=512, batch=1, length=512, max_steps=6)
LENGTHS, PROCESSES, TURNS = (512, 1024, 2048, 4096), (1, 2, 4), 3


def run(settings: Settings) -> list[Measurement]:
    """All lengths with all numbers of processes; `settings.seconds` has no effect."""
    lengths, processes = ((16, 32), (1, 2)) if settings.quick else (LENGTHS, PROCESSES)
    shapes = [replace(SIZES, length=length) for length in lengths]
    found = {size: _measured(shapes, size=size, threads=settings.threads or 1) for size in processes}
    return [one for size in processes for index in range(len(shapes))
            for one in _compare(shapes[index], size=size, own=found[size][index], alone=found[1][index])]  # fmt: skip


def _compare(shape: BenchmarkSizes, *, size: int, own: dict[str, Any], alone: dict[str, Any]) -> list[Measurement]:
    """Time and memory of each of `size` processes, and how many times those of one process they are smaller."""
    what = f"{size} process{'es' if size > 1 else ''}: {shape}"
    details = {"by": "positions", "processes": size, **own}
    time_taken = Measurement(
        name=f"time of each of {what}",
        shape=vars(shape),
        seconds={"pass": own["seconds"], "processor": own["processor_seconds"]},
        turns=TURNS,
        ours="processor",
        over="one process",
        ratio=alone["processor_seconds"] / own["processor_seconds"],
        bound=float(size),
        details=details,
    )
    memory = f"memory of each of {what}: {own['peak_bytes'] / 2**20:.1f} MiB"
    return [time_taken, replace(time_taken, name=memory, seconds={}, ratio=alone["peak_bytes"] / own["peak_bytes"])]


def _measured(shapes: list[BenchmarkSizes], *, size: int, threads: int) -> list[dict[str, Any]]:
    """What each shape needs with `size` processes: in the process that needs most."""
    with TemporaryDirectory() as folder:
        multiprocessing.spawn(_work, (shapes, size, threads, folder), nprocs=size)  # type: ignore[attr-defined, no-untyped-call]
        found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(size)]
    return [{name: max(one[name] for one in each) for name in each[0]} for each in zip(*found, strict=True)]


def _work(rank: int, shapes: list[BenchmarkSizes], size: int, threads: int, folder: str) -> None:
    torch.set_num_threads(threads)
    if size > 1:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    found = [_one_shape(shape, spread=size > 1) for shape in shapes]
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    if size > 1:
        distributed.destroy_process_group()


def _one_shape(shape: BenchmarkSizes, *, spread: bool) -> dict[str, float]:
    module, states, direction = encoder(shape, halting=False).train(), inputs(shape), inputs(shape, seed=2)
    if spread:
        make_context_parallel(module)

    def work() -> None:
        output, _ = apply(module, states.detach().requires_grad_())
        torch.autograd.backward((output * direction).sum())

    work()  # the gradients of the weights stay from here on
    peak, times = peak_bytes(work, device=states.device), list[tuple[float, float]]()
    for _ in range(TURNS):
        began, used = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - began, time.process_time() - used))
    seconds, processor = (statistics.median(values) for values in zip(*times, strict=True))
    return {"seconds": seconds, "processor_seconds": processor, "peak_bytes": peak}
