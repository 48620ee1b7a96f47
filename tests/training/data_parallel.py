"""Run by torchrun: train small models of every kind in float64, in one folder each.

torchrun --nproc-per-node N data_parallel.py FOLDER UPDATES NAME...    these of `RUNS`; begin `CONTINUED`, or go on
torchrun --nproc-per-node N data_parallel.py FOLDER SIGNAL             a run whose last process gets a signal in it
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from universal_transformer.errors import UserError
from universal_transformer.recipes import RECIPES
from universal_transformer.runs.trainer import train
from universal_transformer.training.run import TrainingRun
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced

SMALL = {
    "model.sizes.width": 16,
    "model.sizes.filter_width": 24,
    "model.sizes.num_heads": 2,
    "model.step.dropout": 0.0,
    "training.minutes": None,
    "training.max_updates": 6,
    "training.validate_every": 4,
    "training.log_every": 1,
    "training.threads": 1,
    "training.schedule": "constant",
    "training.ema_decay": None,
}
STORIES = {
    "data.train_stories": 60,
    "data.validation_stories": 10,
    "data.test_stories": 5,
    "training.batch_tokens": 150,
}
COPY = {
    "data.train_examples": 60,
    "data.validation_examples": 10,
    "data.test_examples": 2,
    "data.train_lengths": (1, 10),
    "data.test_lengths": (12,),
    "model.coordinates.offsets": "none",
}
HALTING = {"model.halting.side": "both", "training.halting_delay": 0.0, "training.ponder_weight": 0.05}
RUNS = {
    "act": ("stories", {**STORIES, **HALTING, "model.halting.bias": 0.5}),
    "passes": ("stories", {**STORIES, **HALTING, "training.accumulate": 3}),
    "ponder": ("stories", {**STORIES, **HALTING, "model.halting.rule": "ponder"}),
    "delayed": ("stories", {**STORIES, **HALTING, "training.halting_delay": 0.5}),
    "pairs-act": ("copy-ut-halting", {**COPY, "training.batch_tokens": 120, "training.step_loss": "mean"}),
    "pairs": ("copy", {**COPY, "training.batch_tokens": 90}),
    "few-rows": ("copy", {**COPY, "training.batch_tokens": 8}),
    "tagger": ("sudoku-4", {"data.train_boards": 5, "data.train_examples": 40, "data.validation_boards": 2,
                            "data.test_boards": 2, "training.batch_tokens": 96}),
    "shards": ("stories", {**STORIES, **HALTING, "training.parallel": "shards", "training.accumulate": 2,
                           "training.ema_decay": 0.9, "training.average_checkpoints": 2,
                           "training.save_minutes": 1e-4}),
    "shards-of-pairs": ("copy-ut-halting", {**COPY, "training.batch_tokens": 120, "training.parallel": "shards",
                                            "training.select_by": "metric", "training.clip_norm": 0.1,
                                            "training.optimizer": "muon"}),
    "shards-of-lstm": ("copy-lstm", {**COPY, "training.parallel": "shards", "model.width": 16, "model.dropout": 0.0}),
    "positions": ("stories", {**STORIES, **HALTING, "training.parallel": "positions", "training.accumulate": 2}),
    "positions-of-pairs": ("copy-ut-halting", {**COPY, "training.batch_tokens": 120, "training.parallel": "positions",
                                               "training.select_by": "metric"}),
}  # fmt: skip
CONTINUED = ("passes", "shards")
ALWAYS = ("act", *CONTINUED, "pairs-act", "positions")
"""Runs of each change: each way to share the work, a model with one side and one with two; all others in the night."""


def config_of(name: str, changes: dict[str, object]) -> RunConfig:
    recipe, fields = RUNS[name]
    fields = SMALL | fields | changes
    if recipe.endswith("lstm"):
        fields = {name: value for name, value in fields.items() if name.count(".") == 1}
    return replaced(RECIPES[recipe](), fields)


def main(folder: Path, what: str, *names: str) -> None:
    torch.set_default_dtype(torch.float64)
    if what.isdecimal():
        for name in names:
            with counted(folder / os.environ["WORLD_SIZE"] / f"moments-{os.environ['RANK']}.json"):
                train(config_of(name, {}), folder / os.environ["WORLD_SIZE"] / name, quiet=True)
        for name in CONTINUED:
            config, begun = config_of(name, {"training.max_updates": int(what)}), folder / "continued" / name
            train(config, begun, resume=(begun / "config.json").exists(), quiet=True)
    else:
        send(signal.Signals[what])
        try:
            train(config_of("act", {"training.save_minutes": 1e-9}), folder / "lost", quiet=True)
        except UserError as error:
            sys.exit(f"process {os.environ['RANK']}: {error}")


@contextlib.contextmanager
def counted(path: Path) -> Iterator[None]:
    """Write how many numbers of the optimizer's state this process has in the middle of a run in shards."""
    update = TrainingRun.update

    def counting(run: TrainingRun) -> None:
        update(run)
        if run.training.parallel == "shards" and run.state.update == 2:
            states = [state for one in run.optimizers for state in one.state.values()]
            moments = [value for state in states for key, value in state.items() if key != "step"]
            local = [moment.to_local() if isinstance(moment, DTensor) else moment for moment in moments]
            path.write_text(json.dumps({"here": sum(map(torch.numel, local)), "all": sum(map(torch.numel, moments))}))

    TrainingRun.update = counting  # type: ignore[method-assign]
    try:
        yield
    finally:
        TrainingRun.update = update  # type: ignore[method-assign]


def send(number: signal.Signals) -> None:
    """Send a signal to the last process before its third update."""
    update = TrainingRun.update

    def interrupted(run: TrainingRun) -> None:
        if run.state.update == 2 and run.processes.rank == run.processes.size - 1:
            os.kill(os.getpid(), number)
        update(run)

    TrainingRun.update = interrupted  # type: ignore[method-assign]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
