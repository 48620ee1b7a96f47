"""T4, T5: a process that is lost ends the others, and 1 and 2 processes continue each other's run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from torture.outcome import Outcome
from training.test_processes import lines
from universal_transformer.training.processes import TIMEOUT

TIMES = 5
SECONDS = {"kill": TIMEOUT + 10, "raise": TIMEOUT + 10, "stop": TIMEOUT + 60}
"""From the loss of a process to the end of all. torchrun waits 30 seconds for a process that is stopped."""
BEFORE, AFTER = 10, 50
"""Updates before another number of processes continues, and updates that are compared then."""
TOLERANCE = 1e-6


def processes() -> list[str]:
    """The command lines of all processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found


def launch(size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `torture.ranks` with so many processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return subprocess.run(
        [*command, "-m", "torture.ranks", *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def ended(share: float, folder: Path) -> Outcome:
    """T4: killed, raising, stopped, each 5 times; those that are stopped wait all at once."""
    outcome, times = Outcome(), range(max(1, round(TIMES * share)))
    found = {(how, number): lose(folder / f"{how}-{number}", how) for how in ("kill", "raise") for number in times}
    with ThreadPoolExecutor(len(times)) as pool:
        names = [folder / f"stop-{number}" for number in times]
        found |= {("stop", number): one for number, one in enumerate(pool.map(lose, names, ["stop"] * len(names)))}
    for (how, number), (_, problems) in found.items():
        outcome.add(f"{how} {number}", problems)
    for how in SECONDS:
        outcome.notes.append(f"{how}: at most {max(found[how, number][0] for number in times):.0f} s")
    return outcome


def lose(folder: Path, how: str) -> tuple[float, list[str]]:
    """Lose a process; return the seconds to the end of all, and what is wrong."""
    folder.mkdir()
    done = launch(2, "lost", folder, how)
    event = folder / "lost-at"
    if not event.exists():
        return 0.0, [f"no process was lost: {done.stderr[-300:]!r}"]
    seconds = time.time() - float(event.read_text())
    problems = [] if done.returncode else ["exit code 0"]
    problems += [] if seconds <= SECONDS[how] else [f"{seconds:.0f} seconds"]
    named = [line for line in done.stderr.splitlines() if "no answer from process 1 of 2: stopped" in line]
    problems += [] if len(named) == 1 else [f"the lost process is named in {len(named)} lines"]
    problems += [f"orphan: {line[:80]}" for line in processes() if str(folder) in line]
    return seconds, problems


def continued(share: float, folder: Path) -> Outcome:
    """T5: 10 updates, then 50 by another number of processes: samples and losses of each are those of one process."""
    outcome, until = Outcome(), BEFORE + max(5, round(AFTER * share))
    for name, sizes in {"whole": (1,), "1 then 2": (1, 2), "2 then 1": (2, 1), "2 all along": (2, 2)}.items():
        (folder / name).mkdir()
        for size, updates in zip(sizes, (BEFORE, until) if len(sizes) > 1 else (until,), strict=True):
            done = launch(size, "samples", folder / name, updates)
            assert done.returncode == 0, done.stderr[-2000:]
    whole, losses = samples_of(folder / "whole"), losses_of(folder / "whole")
    left_out = lines(folder / "whole" / "run", event="outlier")
    assert whole[BEFORE + 1][0] > 0, "the other processes begin in mid-epoch"
    for name in ("1 then 2", "2 then 1", "2 all along"):
        own, found = samples_of(folder / name), losses_of(folder / name)
        for update in range(1, until + 1):
            problems = [] if sorted(own[update][1]) == sorted(whole[update][1]) else ["other samples"]
            far = abs(found[update] - losses[update]) > TOLERANCE * abs(losses[update])
            outcome.add(f"{name}, update {update}", problems + ["another loss"] * far)
        same = [line["update"] for line in lines(folder / name / "run", event="outlier")]
        outcome.add(f"{name}, outliers", [] if same == [line["update"] for line in left_out] else ["other updates"])
    outcome.notes.append(f"{until} updates each; {len(left_out)} updates were left out as outliers, in all the same")
    return outcome


def samples_of(folder: Path) -> dict[int, tuple[int, list[int]]]:
    """Return the place in the epoch and the examples of each update, of all processes."""
    found: dict[int, tuple[int, list[int]]] = {}
    for path in folder.glob("samples-*"):
        for line in map(json.loads, path.read_text().splitlines()):
            found[line["update"]] = line["batch"], [*found.get(line["update"], (0, []))[1], *line["samples"]]
    return found


def losses_of(folder: Path) -> dict[int, float]:
    """Return the loss of each update."""
    return {line["update"]: line["loss"] for line in lines(folder / "run", event="update")}


def poisoned_ranks(folder: Path) -> dict[str, list[str]]:
    """Return what is wrong, by case, with runs in one process of which a loss is not finite (N1)."""
    (place := folder / "ranks").mkdir()
    done = launch(2, "poison", place)
    assert done.returncode == 0, done.stderr[-2000:]
    both = [json.loads((place / f"poison-{rank}.json").read_text()) for rank in range(2)]
    return {name: [*problems, *both[1][name]] for name, problems in both[0].items()}
