"""Memory that one update frees is what the next one needs: on Linux, do not give it back to the system in between.

The C library returns large blocks at once and is handed them back page by page, each page a fault: a fifth of the
time of a language model's updates on one core, a tenth of a small classifier's (`docs/performance.md`).
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_SETTINGS = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1, _TOP_PAD: 1 << 26}


def keep_freed_memory() -> bool:
    """Let glibc keep up to 2 GiB of freed memory for this process; return whether it does (elsewhere: False)."""
    if sys.platform != "linux":
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return all(set_option(name, value) == 1 for name, value in _SETTINGS.items())
