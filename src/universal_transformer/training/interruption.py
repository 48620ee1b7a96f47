"""Ctrl-C, SIGTERM, a closed terminal and a deadline request a stop, which saves; a second Ctrl-C stops it at once."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from universal_transformer.training.processes import started


class StopRequest:
    """Whether a stop was requested: by a signal, and which, or by the deadline."""

    def __init__(self, *, deadline: float = math.inf) -> None:
        self.signal: str | None = None
        self.deadline = deadline

    def __call__(self) -> bool:
        return self.signal is not None or time.monotonic() >= self.deadline

    @property
    def reason(self) -> str:
        return self.signal or "its deadline"


@contextmanager
def stop_on_signals(*, deadline: float = math.inf) -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a StopRequest while inside (in the main thread, where signals arrive).

    `deadline`, a time of `time.monotonic`, makes the request too.
    """
    request = StopRequest(deadline=deadline)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    closed = [signal.SIGHUP] if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
    watched = (signal.SIGINT, signal.SIGTERM, *closed)
    previous = {number: signal.getsignal(number) for number in watched}

    def ask(number: int, _frame: FrameType | None) -> None:
        request.signal = signal.Signals(number).name
        with suppress(OSError, AttributeError):  # stderr is closed, or there is none
            if started().first:
                os.write(sys.stderr.fileno(), b"\nut: stopping and saving; a second signal stops without saving\n")
        for other in () if number in closed else watched[:2]:  # the shell and the system may both say that it is closed
            signal.signal(other, previous[other])

    for number in watched:
        signal.signal(number, ask)
    try:
        yield request
    finally:
        for number in watched:
            signal.signal(number, previous[number])
