"""Training by 1, 2 and 4 processes has the same losses, and a process that is lost ends the others."""

import itertools
import json
import math
import os
import socket
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

import forked
from universal_transformer.data.example import Example
from universal_transformer.runs import checkpoint as checkpoints
from universal_transformer.training import processes as process_groups
from universal_transformer.training.batches import TrainingBatches
from universal_transformer.training.processes import TIMEOUT, Processes

from .data_parallel import ALWAYS, CONTINUED, RUNS, SMALL

pytestmark = pytest.mark.timeout(900)  # its processes share their cores with other tests
SCRIPT = Path(__file__).with_name("data_parallel.py")
BEGUN = 3
"""Update to which several processes begin the runs `CONTINUED`, which one process continues."""
TOLERANCE = 1e-6


def launch(size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return subprocess.run(
        [*command, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def start_together(size: int, folder: Path, *arguments: object) -> dict[BaseProcess, Path]:
    """Run `SCRIPT` in processes with the variables that torchrun would set; return where each writes its errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(size)}
    started = {}
    for rank in range(size):
        errors = folder / f"errors-{rank}-of-{size}"
        variables = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        files = (os.devnull, os.devnull, errors)
        started[forked.start(SCRIPT, folder, *arguments, files=files, variables=variables)] = errors
    return started


def lines(folder: Path, *, event: str) -> list[dict]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if line["event"] == event]


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def size(request):
    """The number of processes that are compared with one."""
    return request.param


@pytest.fixture(scope="module")
def runs(size, request, tmp_path_factory):
    """The folder with the runs of each number of processes."""
    folder = tmp_path_factory.mktemp("processes")
    each_change = "not slow" in request.config.option.markexpr and not request.config.getoption("--products")
    names = ALWAYS if each_change else RUNS
    for count, updates in ((size, BEGUN), (1, SMALL["training.max_updates"])):
        for process, errors in start_together(count, folder, updates, *names).items():
            process.join()
            assert process.exitcode == 0, errors.read_text()[-3000:]
    return folder


@pytest.mark.parametrize(
    "name", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in RUNS]
)
def test_any_number_of_processes_has_the_same_losses(runs, size, name):
    for event, kept in (
        ("update", ("loss", "cross_entropy", "mean_steps", "gradient_norm", "learning_rate", "epoch")),
        ("validation", ("cross_entropy", "error", "mean_steps")),
    ):
        alone = lines(runs / "1" / name, event=event)
        assert len(alone) >= 2
        together = lines(runs / str(size) / name, event=event)
        for one, other in zip(alone, together, strict=True):
            assert [other[key] for key in kept] == pytest.approx([one[key] for key in kept], rel=TOLERANCE, abs=1e-9)
    assert [lines(runs / str(count) / name, event="start")[0]["processes"] for count in (1, size)] == [1, size]


@pytest.mark.parametrize("name", ["act", "shards"])
def test_the_weights_at_the_end_are_the_same_and_every_process_has_them(runs, size, name):
    one, other = (checkpoints.load_newest(runs / str(count) / name / "checkpoints")[0] for count in (1, size))
    assert bool(one.tensors["ema"]) == (name == "shards")
    assert other.state["run"]["examples"] == one.state["run"]["examples"]
    assert other.state["run"]["targets"] == one.state["run"]["targets"]
    for part in one.tensors.keys() - {"random"}:
        for tensor, values in one.tensors[part].items():
            torch.testing.assert_close(other.tensors[part][tensor], values, rtol=1e-4, atol=1e-7)


def test_in_shards_each_process_has_a_part_of_the_state_of_the_optimizer(runs, size):
    for count in (1, size):
        parts = [json.loads((runs / str(count) / f"moments-{rank}.json").read_text()) for rank in range(count)]
        assert sum(part["here"] for part in parts) == parts[0]["all"]
        # the rows of a weight are divided, and no process has fewer than none of a bias of one number
        assert max(part["here"] for part in parts) < 1.15 * parts[0]["all"] / count


@pytest.mark.parametrize("name", CONTINUED)
def test_a_run_continues_with_another_number_of_processes(runs, name):
    undisturbed, found = (lines(folder / name, event="update") for folder in (runs / "1", runs / "continued"))
    losses = [line["loss"] for line in undisturbed]
    assert [line["loss"] for line in found] == pytest.approx(losses, rel=TOLERANCE)
    assert [line["update"] for line in found] == list(range(1, SMALL["training.max_updates"] + 1))


@pytest.mark.slow
def test_processes_that_share_positions_score_a_run_as_one_does(runs, size):
    found = []
    for count in (1, size):
        run = runs / str(size) / "positions-of-pairs"
        done = launch(count, "-m", "universal_transformer", "evaluate", run, "--json", "--device", "cpu")
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads(done.stdout))
    for one, other in zip(*(report["rows"] + report["totals"] for report in found), strict=True):
        assert other["metrics"] == pytest.approx(one["metrics"], rel=1e-5)


@pytest.mark.parametrize("number", ["SIGKILL", pytest.param("SIGSTOP", marks=pytest.mark.slow)])
def test_a_lost_process_ends_the_others_with_one_line(tmp_path, number):
    (left, errors), (lost, _) = start_together(2, tmp_path, number).items()
    left.join(TIMEOUT + 60)
    lost.kill()  # it may be stopped
    lost.join()
    assert left.exitcode == 1
    said = [line for line in errors.read_text().splitlines() if "no answer from process 1 of 2: stopped" in line]
    assert len(said) == 1, errors.read_text()[-3000:]
    kept, _ = checkpoints.load_newest(tmp_path / "lost" / "checkpoints")
    assert kept.state["run"]["update"] in (1, 2)


@pytest.mark.parametrize(("count", "passes"), [*itertools.product((1, 2, 3, 5), (1, 2))])
def test_each_example_is_seen_once_an_epoch_by_one_process(count, passes):
    examples = [Example(source=(4,) * (1 + i % 7), target=(5,) * (1 + i % 5)) for i in range(83)]
    seen = []
    for rank in range(count):
        batches = TrainingBatches(
            examples, batch_tokens=20, seed=3, device=torch.device("cpu"),
            passes=passes, processes=Processes(rank=rank, size=count),
        )  # fmt: skip
        while batches.epoch == 0:
            parts, targets = batches.parts, batches.targets
            own = [part.batch.indices.tolist() for part in parts if part.weight]
            assert len(parts) == min(passes, math.ceil(batches.rows / count))  # none without a row
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
