"""What a worker is given, what it returns, and when it is interrupted."""

import json
import multiprocessing
import os
import signal
import threading
import time

import pytest

from paper import workers
from paper.runs import Runner, plan
from paper.tables import TABLES
from paper.workers import job_of, work
from small_stories import write_stories
from universal_transformer.tasks import StoriesData
from universal_transformer.tasks.babi import TASK_NAMES


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with made-up data of the bAbI format."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UT_DATA", str(tmp_path / "data"))
    files = tmp_path / "data" / "babi" / "tasks_1-20_v1-2" / "en-10k"
    for number in (1, 2, 4):
        stories = StoriesData(train_stories=10, validation_stories=1, test_stories=4, seed=number)
        write_stories(stories, files)
        for part in ("train", "test"):
            (files / f"{part}.txt").rename(files / f"qa{number}_{TASK_NAMES[number]}_{part}.txt")
    return tmp_path


def test_a_worker_is_interrupted_while_it_trains_alone(monkeypatch):
    """The caller closes its end of the connection when it has the result, and when it is killed."""
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
