"""``--processes K``: each run in a process of its own, which records it, and K of them at a time on this machine."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from paper.campaign import ReproductionOutcome
from paper.runs import Runner
from universal_transformer.cli.output import INTERRUPTED

POLL_SECONDS = 0.2


def in_processes(
    arguments: Sequence[str], *, places: Sequence[int], processes: int, runner: Runner
) -> ReproductionOutcome:
    """Make the runs of `places`, each by ``ut reproduce`` with the same `arguments`, so many `processes` at a time.

    Ctrl-C lets all of them save. That of a terminal reaches this process only, which passes it on; a second one ends
    all at once.
    """
    command = [sys.executable, "-m", "universal_transformer", "reproduce", *_without_budget(arguments)]
    least, waiting = runner.shortest, [*places]
    running: list[subprocess.Popen[bytes]] = []
    codes = {0}
    try:
        try:
            while running or waiting:
                while waiting and len(running) < processes and (rest := runner.rest) >= least:
                    own = ["--place", str(waiting.pop(0)), *[f"--budget={rest:.3f}s"] * math.isfinite(rest)]
                    running.append(subprocess.Popen([*command, *own], start_new_session=True))  # noqa: S603 ours
                if not running:
                    codes.add(os.EX_TEMPFAIL)
                    break
                time.sleep(POLL_SECONDS)
                codes |= {code for child in running if (code := child.poll()) is not None}
                running = [child for child in running if child.returncode is None]
        except KeyboardInterrupt:
            for child in running:
                child.send_signal(signal.SIGINT)
            codes |= {INTERRUPTED, *(child.wait() for child in running)}
    finally:
        for child in running:
            child.kill()
    if INTERRUPTED in codes:
        return ReproductionOutcome(stopped="interrupted")
    failed = ["not all runs were made, see above"] * bool(codes - {0, os.EX_TEMPFAIL})
    return ReproductionOutcome(failed=failed, stopped="budget" if os.EX_TEMPFAIL in codes else None)


def _without_budget(arguments: Sequence[str]) -> list[str]:
    """Return `arguments` without ``--budget``, of which each process gets what is left."""
    kept, words = [], iter(arguments)
    for word in words:
        if word == "--budget":
            next(words)
        elif not word.startswith("--budget="):
            kept.append(word)
    return kept


def end_with_parent() -> None:
    """Interrupt this process, so that it saves, when the process that started it has ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
