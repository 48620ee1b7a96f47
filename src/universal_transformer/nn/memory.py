"""Memory that is asked for in one piece: whether it is there is found out before it is taken."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from universal_transformer.axes import Tensor
from universal_transformer.errors import UserError

GROUP = Path("/sys/fs/cgroup")
"""Where Linux says what a container may have."""


def free_bytes(device: torch.device) -> int | None:
    """Memory of ``device`` that can be taken now, as far as the system says; None where it does not."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type != "cpu":
        return None
    found = [value for value in (_system(), _group()) if value is not None]
    return min(found) if found else None


def _system() -> int | None:
    """What the kernel believes it can give without swapping; elsewhere all there is."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


def _group() -> int | None:
    """What is left of a container's limit."""
    try:
        most = int((GROUP / "memory.max").read_text())
        return max(0, most - int((GROUP / "memory.current").read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return None


def check_room(wanted: int, *, device: torch.device, what: str, fix: str) -> None:
    """UserError when ``wanted`` bytes are more than ``device`` has free."""
    free = free_bytes(device)
    if free is not None and wanted > free:
        raise UserError(
            f"{what} takes {show_bytes(wanted)}, and {show_bytes(free)} are free on {device}: {fix}"
        )


def allocate(
    shape: Sequence[int], *, dtype: torch.dtype, device: torch.device, what: str, fix: str
) -> Tensor:
    """Zeros; UserError when they do not fit into what is free. ``what`` they are and the ``fix`` are its words."""
    check_room(math.prod(shape) * dtype.itemsize, device=device, what=what, fix=fix)
    try:
        return torch.zeros(*shape, dtype=dtype, device=device)
    except RuntimeError:  # what torch raises when memory does not suffice after all
        raise UserError(f"{what} does not fit into memory: {fix}") from None


def show_bytes(number: int) -> str:
    """1,234 B, 1.2 MiB, …"""
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:,.0f} {units[0]}" if units[0] == "B" else f"{value:,.1f} {units[0]}"
