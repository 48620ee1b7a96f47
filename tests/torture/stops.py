"""T6: what a signal ends is saved, one process writes a run at a time, and a resume names what has changed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from torture.children import Ended, command
from torture.outcome import Outcome
from torture.runs import SmallRun, differences, import_all
from torture.saves import undisturbed

TIMES = 20
SECONDS = 5.0
LONG = {"training__max_updates": 200, "training__validate_every": 1_000, "training__save_minutes": 5}
"""A run that is still going on when the signal comes, and that saves nothing of its own accord."""


def saved(share: float, folder: Path) -> Outcome:
    """T6: SIGINT and SIGTERM, once and twice, a second writer, and resumes of a run that has changed."""
    import_all(folder / "first")
    outcome, draw = Outcome(), random.Random(0)
    whole, _ = undisturbed(folder / "whole", **LONG)
    slowest = 0.0
    for number in range(max(1, round(TIMES * share))):
        sent = (signal.SIGINT, signal.SIGTERM)[number % 2]
        run = SmallRun(folder, **LONG)
        run.clear()
        updates, seconds, ended = stopped(run, [sent], after=draw.randint(1, 40))
        slowest = max(slowest, seconds)
        problems = [] if ended.code == 130 else [f"exit code {ended.code}, {ended.errors[-300:]!r}"]
        problems += [] if seconds <= SECONDS else [f"{seconds:.1f} seconds"]
        kept = newest_update(run)
        problems += [] if kept >= updates else [f"saved at {kept} of {updates} updates"]
        problems += [] if run.train().code == 0 else ["the resume failed"]
        outcome.add(f"{sent.name} {number}", problems + differences(run, whole))
    for sent, codes in ((signal.SIGINT, (130,)), (signal.SIGTERM, (130, -signal.SIGTERM))):
        run = SmallRun(folder, **LONG)
        run.clear()
        _, seconds, ended = stopped(run, [sent, sent], after=5)
        problems = (
            [] if ended.code in codes and seconds <= SECONDS else [f"exit code {ended.code} after {seconds:.1f} s"]
        )
        problems += [] if run.train().code == 0 else ["the resume failed"]
        outcome.add(f"{sent.name} twice", problems + differences(run, whole))
    outcome.add("a second writer", second_writer(folder))
    for name, problems in changed(folder).items():
        outcome.add(name, problems)
    outcome.notes.append(f"the slowest end took {slowest:.1f} s")
    return outcome


def stopped(run: SmallRun, signals: list[signal.Signals], *, after: int) -> tuple[int, float, Ended]:
    """Send signals to a run after an update; return the updates made before, the seconds to its end, and its end."""
    child = run.start()
    while (made := updates_of(run)) < after:
        time.sleep(0.002)
    began = time.monotonic()
    for number, sent in enumerate(signals):
        if number:
            time.sleep(0.001)
        try:
            os.kill(child.pid, sent)
        except ProcessLookupError:
            break
    ended = child.wait()
    return made, time.monotonic() - began, ended


def updates_of(run: SmallRun) -> int:
    """Return how many updates the metrics of a run in progress have, an unfinished line excepted."""
    path = run.folder / "metrics.jsonl"
    return path.read_text().count('"event": "update"') - 1 if path.exists() else 0


def newest_update(run: SmallRun) -> int:
    """Return the update of the newest checkpoint; -1 without one."""
    return max((int(path.name[:9]) for path in (run.folder / "checkpoints").glob("0*-*")), default=-1)


def second_writer(folder: Path) -> list[str]:
    """Return what is wrong when another process continues a run that one writes."""
    run = SmallRun(folder, **LONG)
    run.clear()
    first = run.start()
    while updates_of(run) < 1:
        time.sleep(0.002)
    os.kill(first.pid, signal.SIGSTOP)  # it cannot end meanwhile
    second = run.train()
    os.kill(first.pid, signal.SIGCONT)
    problems = refused(second, f"is being written by another process ({first.pid})")
    return problems + ([] if first.wait().code == 0 else ["the first one was disturbed"])


def refused(ended: Ended, text: str) -> list[str]:
    """Return what is wrong with a refusal that says this."""
    lines = ended.errors.splitlines()
    right = ended.code == 2 and len(lines) == 1 and text in lines[0]
    return [] if right else [f"exit code {ended.code}, {ended.errors[-300:]!r}"]


def changed(folder: Path) -> dict[str, list[str]]:
    """Return what is wrong with resumes after the data, the configuration or the threads have changed."""
    data, run = folder / "pairs.tsv", folder / "run"
    data.write_text("".join(f"a {number}\tb {number}\n" for number in range(40)))
    SmallRun(folder).clear()
    small = ("sizes.width 16", "sizes.filter-width 32", "sizes.num-heads 2")
    sizes = [part for text in small for part in f"--model.{text}".split()]
    limits = ["--training.minutes", "None", "--training.max-updates", "2", "--training.threads", "1"]
    first = command(["train", "pairs", "--data.train", str(data), "--run", str(run), *sizes, *limits, "--quiet"])
    assert first.code == 0, first.errors
    again = ["train", "--resume", str(run), "--quiet", "--training.max-updates", "3"]
    found = {"another seed": refused(command([*again, "--training.seed", "5"]), "training.seed was 0, is now 5")}
    accepted = ["--training.threads", "2", "--accept-change", "training.threads"]
    found["other threads"] = (
        [] if command([*again, *accepted]).code == 0 and warned(run, "threads was 1, is now 2") else ["not named"]
    )
    with data.open("a") as file:
        file.write("a 99\tb 99\n")
    found["other data"] = refused(command([*again, *accepted[:2]]), "the file of data.train was 380 bytes, is now 390")
    return found


def warned(folder: Path, text: str) -> bool:
    """Return whether the metrics of a run have a warning with this text."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return any(line["event"] == "warning" and text in line["text"] for line in lines)
