"""The time of the sides of a comparison, measured in turns, the ratio of their times, and the peak memory of one."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from universal_transformer.training.dry_run import seconds_of

Side = Callable[[], object]


def alternate(
    sides: Mapping[str, Side],
    *,
    seconds: float,
    least: int = 5,
    most: int = 400,
    warm_up: int = 2,
    device: torch.device | None = None,
) -> dict[str, list[float]]:
    """Return the seconds of each side in each turn: a turn runs every side once, odd turns in reverse order.

    The turns take about ``seconds`` together; there are at least ``least`` and at most ``most`` of them.
    """
    place = device or torch.device("cpu")
    order = list(sides)
    for _ in range(warm_up):
        for name in order:
            seconds_of(sides[name], device=place)
    times: dict[str, list[float]] = {name: [] for name in order}
    end, turn = time.perf_counter() + seconds, 0
    while turn < least or (turn < most and time.perf_counter() < end):
        for name in order if turn % 2 == 0 else reversed(order):
            times[name].append(seconds_of(sides[name], device=place))
        turn += 1
    return times


def comparison(times: Mapping[str, Sequence[float]], *, ours: str = "ours", over: str = "") -> dict[str, Any]:
    """Return the fields of a ``Measurement``: the times, and how many times faster ``ours`` is than ``over``."""
    fields = {"seconds": medians(times), "turns": len(times[ours]), "ours": ours}
    return fields | {"over": over, "ratio": median_ratio(times[over], times[ours])} if over else fields


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Median over the turns of ``slow / fast``."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each side."""
    return {name: statistics.median(values) for name, values in times.items()}


def peak_bytes(work: Side, *, device: torch.device) -> int:
    """Return the peak of the memory in use, minus what was in use before.

    On a GPU this is the allocator's figure. On a CPU it is the largest sum, in order of time, of the allocations and
    releases that the profiler records for torch's allocator: activations, temporary tensors and all that autograd
    keeps. Memory that kernels allocate by other means (packed weights, for example) is not included.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as recorded:
        work()
    results = recorded.profiler.kineto_results if recorded.profiler is not None else None
    assert results is not None
    changes = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak
