"""Runs on Ray: two workers, one of them killed in the middle; no line is lost and none is doubled."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from small_stories import write_stories
from universal_transformer.cli import main
from universal_transformer.tasks import StoriesData
from universal_transformer.tasks.babi import TASK_NAMES

TASKS = (1, 2, 4)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with made-up data of the bAbI format."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UT_DATA", str(tmp_path / "data"))
    files = tmp_path / "data" / "babi" / "tasks_1-20_v1-2" / "en-10k"
    for number in TASKS:
        stories = StoriesData(train_stories=10, validation_stories=1, test_stories=4, seed=number)
        write_stories(stories, files)
        for part in ("train", "test"):
            (files / f"{part}.txt").rename(files / f"qa{number}_{TASK_NAMES[number]}_{part}.txt")
    return tmp_path


def command(minutes, *more):
    rows = ["--columns", "10k-single", "--models", "ut-halting", "--tasks", "1,2,4"]
    return ["reproduce", "table1", *rows, "--minutes", minutes, "--quiet", *more]


def test_without_ray_the_command_says_what_to_install(place, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(command("0.01", "--ray")) == 2
    assert "pip install 'universal-transformer[ray]'" in capsys.readouterr().err
    assert not (place / "runs").exists()


def test_a_worker_is_interrupted_while_it_trains_alone(monkeypatch):
    """The caller closes its end of the connection when it has the result, and when it is killed."""
    from universal_transformer.reproduction import workers

    sent = []
    monkeypatch.setattr(os, "kill", lambda _process, number: sent.append(number))
    for made, expected in ((True, []), (False, [signal.SIGINT])):
        ours, theirs = multiprocessing.Pipe()
        event = threading.Event()
        if made:
            event.set()
        ours.close()
        workers._stop_on_request(theirs, event)
        assert sent == expected


def test_a_worker_makes_a_run_and_says_what_came_of_it(place):
    from universal_transformer.reproduction.runs import Runner, plan
    from universal_transformer.reproduction.tables import TABLES
    from universal_transformer.reproduction.workers import job_of, work

    table = TABLES["table1"]
    for rows, minutes, expected in (
        (["10k-single/ut-halting/1"], 0.002, "result"),
        (["10k-single/ut-halting/5"], 0.002, "error"),
    ):
        (run,) = plan(table, rows, seeds=1, minutes=minutes)
        runner = Runner(table=table, runs=place / "runs", say=print)
        assert list(work(json.loads(json.dumps(job_of(run, runner))))) == [expected]
    late = Runner(table=table, runs=place / "runs", say=print, until=time.monotonic() - 1)
    assert work(job_of(run, late)) == {"stopped": "budget"}


def workers(driver):
    """Processes of Ray that make a run, below the process `driver`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
            if b"10k-single/" in title and driver in ancestors(int(folder.name)):
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue  # it has ended meanwhile
    return found


def ancestors(process):
    while process > 1:
        fields = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()
        process = int(fields[1])
        yield process


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="workers are found in /proc, which is not here")
def test_a_killed_workers_run_is_made_again_and_no_line_is_lost_or_doubled(place):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    code = "import sys; from universal_transformer.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command("0.15", "--ray")], stdout=subprocess.PIPE, text=True
    )
    try:
        started = place / "runs" / "table1" / "10k-single" / "ut-halting"
        deadline = time.monotonic() + 200
        while not list(started.glob("*/*/metrics.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(2)
        victims = workers(process.pid)
        assert victims, "no worker was found while runs were made"
        os.kill(victims[0], signal.SIGKILL)
        shown, _ = process.communicate(timeout=250)
    finally:
        process.kill()
    assert process.returncode == 0, shown
    lines = [json.loads(line) for line in (place / "results" / "table1.jsonl").read_text().splitlines()]
    assert sorted(line["row"][-1] for line in lines) == ["1", "2", "4"]
    begun = [
        sum('"event": "start"' in text or '"event": "resume"' in text for text in file.read_text().splitlines())
        for file in started.glob("*/*/metrics.jsonl")
    ]
    assert sorted(begun) == [1, 1, 2], "the killed worker's run was taken up by another one"
    assert not (place / "results" / "table1.jsonl.damaged").exists()
