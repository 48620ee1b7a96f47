"""Checks that there is enough memory before a large tensor is allocated."""

import os
from pathlib import Path

import torch

from universal_transformer.errors import UserError

GROUP = Path("/sys/fs/cgroup")
"""The folder in which Linux shows the memory limit of a container."""


def free_bytes(device: torch.device) -> int | None:
    """Free memory of ``device``; None where the system does not say."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type != "cpu":
        return None
    found = [value for value in (_system(), _group()) if value is not None]
    return min(found) if found else None


def _system() -> int | None:
    """Available memory by the kernel's estimate, without swapping; elsewhere all memory of the machine."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


def _group() -> int | None:
    """The rest of a container's limit; what it keeps of files can be given back."""
    try:
        most, used = (int((GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        counts = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return max(0, most - used + int(counts["inactive_file"]) + int(counts["active_file"]))
    except (OSError, ValueError, KeyError):  # no container, or "max"
        return None


def check_memory(wanted: int, *, device: torch.device, what: str, fix: str) -> None:
    """UserError when ``wanted`` bytes are more than ``device`` has free."""
    free = free_bytes(device)
    if free is not None and wanted > free:
        raise UserError(f"{what} takes {show_bytes(wanted)}, and {show_bytes(free)} are free on {device}: {fix}")


def show_bytes(number: int) -> str:
    """1,234 B, 1.2 MiB, …"""
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:,.0f} {units[0]}" if units[0] == "B" else f"{value:,.1f} {units[0]}"
