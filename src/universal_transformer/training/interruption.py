"""Ctrl-C and SIGTERM ask a run to stop; it saves and goes, and a second Ctrl-C does not wait for that."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether someone asked the run to stop, and with which signal."""

    def __init__(self) -> None:
        self.signal: str | None = None

    def __call__(self) -> bool:
        return self.signal is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a StopRequest while inside (in the main thread, where signals arrive)."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    watched = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.getsignal(number) for number in watched}

    def ask(number: int, _frame: FrameType | None) -> None:
        request.signal = signal.Signals(number).name
        for other in watched:
            signal.signal(other, previous[other])

    for number in watched:
        signal.signal(number, ask)
    try:
        yield request
    finally:
        for number in watched:
            signal.signal(number, previous[number])


__all__ = ["StopRequest", "stop_on_signals"]
