"""Run by torchrun, in float64: what the processes of T4, T5 and N1 do.

torchrun … -m torture.ranks lost FOLDER kill|raise|stop    the last process is lost before the third update
torchrun … -m torture.ranks samples FOLDER UPDATES         begin or continue a run, and keep which examples each had
torchrun … -m torture.ranks poison FOLDER                  a loss of the last process is not finite
"""

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

from torture.tiny_runs import BAD, PRECISIONS, SEEDS, stopped
from training import tiny
from training.data_parallel import config_of
from universal_transformer.errors import UserError
from universal_transformer.runs.trainer import train
from universal_transformer.training import watches
from universal_transformer.training.run import TrainingRun

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LAST = RANK == SIZE - 1


def lost(folder: Path, how: str) -> None:
    """Train, and lose the last process."""
    update = TrainingRun.update

    def interrupted(run: TrainingRun) -> None:
        if run.state.update == 2 and LAST:
            (folder / "lost-at").write_text(str(time.time()))
            if how == "raise":
                raise RuntimeError("planted")
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how])
        update(run)

    TrainingRun.update = interrupted  # type: ignore[method-assign]
    try:
        train(config_of("act", {"training.save_minutes": 1e-9}), folder / "run", quiet=True)
    except UserError as error:
        sys.exit(f"process {RANK}: {error}")


def samples(folder: Path, updates: int) -> None:
    """Train to an update; write which examples of each update this process computed."""
    watches.LEAST = 5  # so that updates are left out in a short run
    update = TrainingRun.update
    with (folder / f"samples-{RANK}").open("a") as file:

        def noted(run: TrainingRun) -> None:
            parts = run.batches.parts
            own = [index for part in parts if part.weight for index in part.batch.indices.tolist()]
            file.write(json.dumps({"update": run.state.update + 1, "batch": run.batches.index, "samples": own}) + "\n")
            update(run)

        TrainingRun.update = noted  # type: ignore[method-assign]
        config = config_of("passes", {"training.max_updates": updates, "training.skip_outliers": 2.0})
        train(config, folder / "run", resume=(folder / "run" / "config.json").exists(), quiet=True)


def poison(folder: Path) -> None:
    """Write for each case what is wrong in this process."""
    found = {}
    for (kind, value), precision, seed in itertools.product(BAD.items(), PRECISIONS, range(SEEDS)):
        architecture = tiny.ARCHITECTURES[seed % len(tiny.ARCHITECTURES)]
        config = tiny.run_config(
            tiny.model_config(halting=bool(seed % 2)), precision=precision, seed=seed, validate_every=100
        )
        name = f"{kind} in one process of two, {precision}, seed {seed}"
        # ×1: the other process computes its own loss as it is
        found[name] = stopped(config, folder / name, architecture, "loss", value if LAST else 1.0)
    (folder / f"poison-{RANK}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "poison":
        poison(Path(place))
    else:
        torch.set_default_dtype(torch.float64)
        lost(Path(place), rest[0]) if what == "lost" else samples(Path(place), int(rest[0]))
