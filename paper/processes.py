"""``--processes K``: K processes of this machine, each of which makes and records its share of the runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from paper.campaign import ReproductionOutcome
from universal_transformer.cli.output import INTERRUPTED

POLL_SECONDS = 0.5


def in_processes(arguments: Sequence[str], *, count: int) -> ReproductionOutcome:
    """Run ``ut reproduce`` with the same `arguments` `count` times, each for a share; Ctrl-C lets all of them save.

    A Ctrl-C of the terminal reaches this process only, which passes it on; a second one ends all at once.
    """
    command = [sys.executable, "-m", "universal_transformer", "reproduce", *arguments]
    children = [
        subprocess.Popen([*command, "--share", str(place)], start_new_session=True)  # noqa: S603 our own command
        for place in range(count)
    ]
    try:
        try:
            codes = [child.wait() for child in children]
        except KeyboardInterrupt:
            for child in children:
                child.send_signal(signal.SIGINT)
            codes = [INTERRUPTED, *(child.wait() for child in children)]
    finally:
        for child in children:
            child.kill()
    if INTERRUPTED in codes:
        return ReproductionOutcome(stopped="interrupted")
    failed = ["not all runs were made, see above"] * bool({*codes} - {0, os.EX_TEMPFAIL})
    return ReproductionOutcome(failed=failed, stopped="budget" if os.EX_TEMPFAIL in codes else None)


def end_with_parent() -> None:
    """Interrupt this process, so that it saves, when the process that started it has ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
