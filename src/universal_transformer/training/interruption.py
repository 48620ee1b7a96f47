"""Ctrl-C, SIGTERM and a deadline ask a run to stop; it saves and goes, and a second Ctrl-C does not wait for that."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether someone asked the run to stop, and with which signal, or its deadline has come."""

    def __init__(self, *, deadline: float = math.inf) -> None:
        self.signal: str | None = None
        self.deadline = deadline

    def __call__(self) -> bool:
        return self.signal is not None or time.monotonic() >= self.deadline

    @property
    def reason(self) -> str:
        """Return what asked the run to stop."""
        return self.signal or "its deadline"


@contextmanager
def stop_on_signals(*, deadline: float = math.inf) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a StopRequest while inside (in the main thread, where signals arrive).

    `deadline` is a time of `time.monotonic`, at which the request is made too.
    """
    request = StopRequest(deadline=deadline)
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
