"""Peak memory of a piece of work, in bytes."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object], *, device: torch.device) -> int:
    """The most memory held at once beyond what was held before.

    On a GPU the allocator counts. On a CPU every allocation and release of torch's allocator is taken from the
    profiler's memory events and summed up in the order of time: activations, temporaries and what autograd keeps,
    wherever it is kept. Memory that kernels take past the allocator (packed weights, say) is not seen.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    results = recorded.profiler.kineto_results if recorded.profiler is not None else None
    assert results is not None
    changes = sorted(
        (event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]"
    )
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak
