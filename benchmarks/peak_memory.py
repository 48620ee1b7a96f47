"""Peak memory of a piece of work, in bytes."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object], *, device: torch.device) -> int:
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
