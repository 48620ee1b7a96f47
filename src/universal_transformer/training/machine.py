"""The processor of this machine."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Return the processor's name as the system reports it, or at least its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine() or "unknown"
