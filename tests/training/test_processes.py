"""Training by 1, 2 and 4 processes has the same losses, and a process that is lost ends the others."""

import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from universal_transformer.data.example import Example
from universal_transformer.runs import checkpoint as checkpoints
from universal_transformer.training import processes as process_groups
from universal_transformer.training.batches import TrainingBatches
from universal_transformer.training.processes import TIMEOUT, Processes

from .data_parallel import CONTINUED, RUNS, SMALL

SCRIPT = Path(__file__).with_name("data_parallel.py")
SIZES = {2: 2, 4: 4, 1: SMALL["training.max_updates"]}
"""Number of processes -> update to which they continue the run `CONTINUED`."""
TOLERANCE = 1e-6


def launch(size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return subprocess.run(
        [*command, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def lines(folder: Path, *, event: str) -> list[dict]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if line["event"] == event]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder with the runs of each number of processes."""
    folder = tmp_path_factory.mktemp("processes")
    for size, updates in SIZES.items():
        done = launch(size, SCRIPT, folder, updates)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_any_number_of_processes_has_the_same_losses(runs, name):
    for event, kept in (
        ("update", ("loss", "cross_entropy", "mean_steps", "gradient_norm", "learning_rate", "epoch")),
        ("validation", ("cross_entropy", "error", "mean_steps")),
    ):
        alone = lines(runs / "1" / name, event=event)
        assert len(alone) >= 2
        for size in (2, 4):
            found = lines(runs / str(size) / name, event=event)
            for one, other in zip(alone, found, strict=True):
                assert [other[key] for key in kept] == pytest.approx(
                    [one[key] for key in kept], rel=TOLERANCE, abs=1e-9
                )


@pytest.mark.parametrize("name", ["act", "shards"])
def test_the_weights_at_the_end_are_the_same_and_every_process_has_them(runs, name):
    first, *others = (checkpoints.load_newest(runs / str(size) / name / "checkpoints")[0]
                      for size in (1, 2, 4))  # fmt: skip
    assert bool(first.tensors["ema"]) == (name == "shards")
    for other in others:
        assert other.state["run"]["examples"] == first.state["run"]["examples"]
        assert other.state["run"]["targets"] == first.state["run"]["targets"]
        for part in first.tensors.keys() - {"random"}:
            for tensor, values in first.tensors[part].items():
                torch.testing.assert_close(other.tensors[part][tensor], values, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_in_shards_each_process_has_a_part_of_the_state_of_the_optimizer(runs, size):
    counts = [json.loads((runs / str(size) / f"moments-{rank}.json").read_text()) for rank in range(size)]
    assert sum(count["here"] for count in counts) == counts[0]["all"]
    # the rows of a weight are divided, and no process has fewer than none of a bias of one number
    assert max(count["here"] for count in counts) < 1.15 * counts[0]["all"] / size


@pytest.mark.parametrize("name", CONTINUED)
def test_a_run_continues_with_another_number_of_processes(runs, name):
    undisturbed, found = (lines(folder / name, event="update") for folder in (runs / "1", runs / "continued"))
    losses = [line["loss"] for line in undisturbed]
    assert [line["loss"] for line in found] == pytest.approx(losses, rel=TOLERANCE)
    assert [line["update"] for line in found] == list(range(1, SMALL["training.max_updates"] + 1))


@pytest.mark.slow
def test_processes_that_share_positions_score_a_run_as_one_does(runs):
    found = []
    for size in (1, 2):
        run = runs / "2" / "positions-of-pairs"
        done = launch(size, "-m", "universal_transformer", "evaluate", run, "--json", "--device", "cpu")
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads(done.stdout))
    for one, other in zip(*(report["rows"] + report["totals"] for report in found), strict=True):
        assert other["metrics"] == pytest.approx(one["metrics"], rel=1e-5)


@pytest.mark.parametrize("number", ["SIGKILL", pytest.param("SIGSTOP", marks=pytest.mark.slow)])
def test_a_lost_process_ends_the_others_with_one_line(tmp_path, number):
    began = time.monotonic()
    done = launch(2, SCRIPT, tmp_path, number)
    # torchrun waits 30 seconds before it kills a process that is stopped
    assert time.monotonic() - began < TIMEOUT + 60
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if "no answer from process 1 of 2: stopped" in line]
    assert len(said) == 1, done.stderr[-3000:]
    kept, _ = checkpoints.load_newest(tmp_path / "lost" / "checkpoints")
    assert kept.state["run"]["update"] in (1, 2)
    assert not [line for line in processes() if str(tmp_path) in line]


def processes() -> list[str]:
    """Return the command lines of all processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.parametrize(("size", "passes"), [*itertools.product((1, 2, 3, 5), (1, 2))])
def test_each_example_is_seen_once_an_epoch_by_one_process(size, passes):
    examples = [Example(source=(4,) * (1 + i % 7), target=(5,) * (1 + i % 5)) for i in range(83)]
    seen = []
    for rank in range(size):
        batches = TrainingBatches(
            examples, batch_tokens=20, seed=3, device=torch.device("cpu"),
            passes=passes, processes=Processes(rank=rank, size=size),
        )  # fmt: skip
        while batches.epoch == 0:
            parts, targets = batches.current()
            own = [part.batch.indices.tolist() for part in parts if part.weight]
            assert len(parts) == passes
            assert targets == sum(len(examples[index].target) for rows in own for index in rows)
            seen += itertools.chain.from_iterable(own)
            batches.advance()
    assert sorted(seen) == list(range(len(examples)))


def test_a_process_of_its_own_exchanges_nothing():
    values = torch.tensor([1.0, math.pi])
    assert Processes().sum(values) is values


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl")])
def test_processes_on_gpus_exchange_gradients_by_nccl_and_counts_by_gloo(monkeypatch, device, backend):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    begun = []
    monkeypatch.setattr(process_groups.distributed, "init_process_group", lambda name, **_: begun.append(name))
    monkeypatch.setattr(process_groups.atexit, "register", lambda _: None)
    with process_groups.joined(torch.device(device)) as found:
        assert found == Processes(rank=1, size=2)
    assert begun == [backend]
