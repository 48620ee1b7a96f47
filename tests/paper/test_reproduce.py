"""``ut reproduce`` on made-up files of the bAbI format, trained for half a second: each run once, whatever happens."""

import json
import math
import os
import re
import signal
import time

import pytest

import forked
from paper import command
from paper.campaign import ReproductionOutcome
from paper.processes import in_processes
from paper.runs import Runner
from small_stories import write_stories
from universal_transformer.cli import main
from universal_transformer.cli.fields import override
from universal_transformer.cli.parser import parse
from universal_transformer.errors import UserError
from universal_transformer.recipes import RECIPES
from universal_transformer.runs import trainer
from universal_transformer.tasks import StoriesData
from universal_transformer.tasks.babi import TASK_NAMES

PARTIAL = "task 3: 30 of 10,000 training questions"
EXCHANGED = "trained on 15 further forms of each question, with names exchanged"
TASKS = (1, 2, 4)
COMMAND = ["reproduce", "table1", "--columns", "10k-single", "--models", "ut-halting", "--quiet"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with made-up data for tasks 1, 2 and 4, and for a part of task 3."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UT_DATA", str(tmp_path / "data"))
    files = tmp_path / "data" / "babi" / "tasks_1-20_v1-2" / "en-10k"
    derived = tmp_path / "data" / "babi" / "derived"
    derived.mkdir(parents=True)
    for number in (*TASKS, 3):
        stories = StoriesData(train_stories=10, validation_stories=1, test_stories=4, seed=number)
        write_stories(stories, files)
        name = f"qa{number}_{TASK_NAMES[number]}"
        target = files / f"{name}_train.txt" if number != 3 else derived / f"{name}_train_10k-partial.txt"
        (files / "train.txt").rename(target)
        (files / "test.txt").rename(files / f"{name}_test.txt")
    return tmp_path


def lines(place):
    return [json.loads(line) for line in (place / "results" / "paper" / "table1.jsonl").read_text().splitlines()]


def measure(*arguments):
    return main([*COMMAND, "--minutes", "0.002", *arguments])


def test_runs_are_made_recorded_and_not_made_again(place, capsys):
    assert measure("--tasks", "1,3") == 0
    first, second = lines(place)
    assert (first["row"], second["row"]) == ("10k-single/ut-halting/1", "10k-single/ut-halting/3")
    ((group, scores),) = first["figures"].items()
    assert group == "task 1 single-supporting-fact"
    assert 0 <= scores["error"] <= 100
    assert scores["count"] == first["examples"]["test"] == 12
    assert first["examples"] == {"train": 16 * 27, "validation": 3, "test": 12}
    assert first["hardware"].keys() >= {"cpu", "cores", "threads", "device"}
    assert first["updates"] > 0
    assert first["resumes"] == 0
    (by_side,) = first["steps"].items()
    assert by_side == ("encoder", [sum(numbers) for numbers in zip(*first["steps_by_supports"].values(), strict=True)])
    assert second["notes"] == [PARTIAL, EXCHANGED]
    command = first["command"].split()
    assert override(RECIPES[command[2]](), command[3:], prog="ut").digest() == first["config"]
    before = (place / "results" / "paper" / "table1.jsonl").read_bytes()
    capsys.readouterr()

    assert measure("--tasks", "1", "3") == 0
    assert "2 of 2 runs are recorded" in capsys.readouterr().out
    assert (place / "results" / "paper" / "table1.jsonl").read_bytes() == before
    table = (place / "results" / "paper" / "table1.md").read_text()
    assert "2 of 20 tasks" in table
    assert PARTIAL in table


def test_a_run_that_was_trained_but_not_recorded_is_recorded_without_training(place, capsys):
    assert measure("--tasks", "1") == 0
    (first,) = lines(place)
    path = place / "results" / "paper" / "table1.jsonl"
    path.write_bytes(path.read_bytes()[:-100])
    capsys.readouterr()
    assert measure("--tasks", "1") == 0
    shown = capsys.readouterr().out
    assert "its last line is half-written: that run counts as not done" in shown
    assert f"% (mean over groups; validation error {first['validation']['error']:.2f} %), " in shown
    (again,) = lines(place)
    assert {**again, "finished": ""} == {**first, "finished": ""}


def test_a_run_is_recorded_with_what_trained_it_last_and_a_change_is_noted(place):
    assert measure("--tasks", "1") == 0
    (first,) = lines(place)
    (metrics,) = (place / "runs").rglob("metrics.jsonl")
    written = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert {**written[0], **first["versions"]} == written[0]
    assert (written[0]["commit"], written[0]["clean"]) == (first["commit"], first["clean"])
    assert first["notes"] == [EXCHANGED]

    def again(*begun):
        (place / "results" / "paper" / "table1.jsonl").unlink()
        metrics.write_text("".join(json.dumps(line) + "\n" for line in (*begun, *written[1:])))
        assert measure("--tasks", "1") == 0
        return lines(place)[0]

    commits = [{**written[0], "commit": letter * 40, "clean": True} for letter in "ab"]
    found = again(*commits)
    assert (found["commit"], found["clean"]) == ("b" * 40, True)
    exchanged, note = found["notes"]
    assert exchanged == EXCHANGED
    assert note.startswith("trained with commit aaaaaaaaaa, python ")
    assert "; then with commit bbbbbbbbbb, " in note
    assert "; measured with commit " in note


def test_an_interrupted_run_goes_on_from_its_folder(place, capsys, monkeypatch):
    from universal_transformer.training.run import TrainingRun

    update = TrainingRun.update

    def interrupted(run):
        update(run)
        if run.state.update == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "update", interrupted)
        assert main([*COMMAND, "--updates", "3", "--tasks", "1,2"]) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert not (place / "results" / "paper" / "table1.jsonl").exists()
    assert "not measured" in (place / "results" / "paper" / "table1.md").read_text()
    assert main([*COMMAND, "--updates", "3", "--tasks", "1,2"]) == 0
    assert [(line["row"][-1], line["resumes"]) for line in lines(place)] == [("1", 1), ("2", 0)]
    assert [line["updates"] for line in lines(place)] == [3, 3]


def test_killed_after_its_first_run_nothing_is_lost_or_doubled(place):
    command = [*COMMAND, "--minutes", "0.02", "--tasks", "1,2,4"]
    file = place / "results" / "paper" / "table1.jsonl"
    process = forked.start("ut", *command)
    try:
        deadline = time.monotonic() + 60
        while not (file.exists() and file.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)  # into the second run
    finally:
        process.kill()
        process.join()
    before = file.read_bytes()
    assert before.count(b"\n") == 1
    assert main(command) == 0
    assert file.read_bytes().startswith(before)
    assert [line["row"][-1] for line in lines(place)] == ["1", "2", "4"]


def test_a_run_that_the_budget_cuts_off_goes_on_with_the_next_call(place, capsys, monkeypatch):
    from universal_transformer.training.run import TrainingRun

    update, updates = TrainingRun.update, []

    def counted(run):
        updates.append(run.state.update)
        update(run)

    monkeypatch.setattr(TrainingRun, "update", counted)
    monkeypatch.setattr(time, "monotonic", lambda: 0.4 * len(updates))  # updates alone take time
    command = [*COMMAND, "--minutes", "0.08", "--tasks", "1,2"]
    assert main([*command, "--budget", "3s"]) == 0
    shown = capsys.readouterr()
    assert "the budget is used up, 2 runs are left; the same command continues" in shown.err
    assert "table1.md; no run is recorded yet" in shown.out
    assert not (place / "results" / "paper" / "table1.jsonl").exists()
    assert "not measured" in (place / "results" / "paper" / "table1.md").read_text()
    assert updates == [*range(8)]  # of 12
    assert main(command) == 0
    assert updates[8:] == [*range(8, 12), *range(12)], "the next call goes on where the budget ended"
    assert [(line["row"][-1], line["resumes"]) for line in lines(place)] == [("1", 1), ("2", 0)]


def test_no_run_is_begun_when_the_rest_is_too_short(place, capsys, monkeypatch):
    seconds = iter([3600.0, 19.0])
    monkeypatch.setattr(Runner, "rest", property(lambda _: next(seconds)))
    assert main([*COMMAND, "--tasks", "1,2", "--budget", "1h"]) == 0
    assert "2 runs are left" in capsys.readouterr().err
    assert not (place / "runs").exists()


def test_a_measurement_that_the_budget_cuts_off_is_made_by_the_next_call(place, capsys, monkeypatch):
    train = trainer.train

    def slow(*arguments, deadline, **options):
        result = train(*arguments, deadline=math.inf, **options)
        time.sleep(max(0.0, deadline - time.monotonic()))
        return result

    monkeypatch.setattr(trainer, "train", slow)
    assert measure("--tasks", "1", "--budget", "3s") == 0
    assert "the budget is used up, 1 runs are left" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setenv("UT_DATA", str(place / "data"))
    assert measure("--tasks", "1") == 0
    assert [(line["row"][-1], line["resumes"]) for line in lines(place)] == [("1", 0)]


def test_seeds_are_run_in_processes_of_their_own(place, capfd):
    assert measure("--tasks", "1,5", "--seeds", "2", "--processes", "2") == 1
    shown = capfd.readouterr()
    assert "[3/4] 10k-single/ut-halting/1 seed 1" in shown.out
    assert sorted(text.split(":")[1] for text in shown.err.splitlines()) == [
        *(f" 10k-single/ut-halting/5 seed {seed}" for seed in (0, 1)),
        " not all runs were made, see above",
    ]
    assert sorted(line["seed"] for line in lines(place)) == [0, 1]
    assert measure("--tasks", "1", "--seeds", "2", "--processes", "2") == 0
    assert len(lines(place)) == 2


def test_what_was_trained_on_a_gpu_is_recorded_where_there_is_one(place, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert measure("--tasks", "1") == 0
    (place / "results" / "paper" / "table1.jsonl").unlink()
    (metrics,) = (place / "runs").rglob("metrics.jsonl")
    metrics.write_text(metrics.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    assert measure("--tasks", "1") == 1
    assert "trained on a GPU, but torch finds none" in capsys.readouterr().err


def test_a_place_is_that_of_one_run_whatever_is_recorded(place, monkeypatch, capsys):
    made = []

    def fail(_, run, *, task):
        assert task.train
        made.append(run.config.training.seed)
        raise UserError("this run is not made")

    assert measure("--tasks", "1") == 0
    monkeypatch.setattr(Runner, "make", fail)
    assert measure("--tasks", "1", "--seeds", "4", "--place", "2") == 1
    assert measure("--tasks", "1", "--seeds", "4", "--place", "0") == 0  # recorded
    assert made == [2]
    assert measure("--tasks", "1", "--place", "1") == 2
    assert "--place 1: expected a number below 1" in capsys.readouterr().err


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """In place of Python a script: it keeps its words, and its place says how it ends (4: when four have begun)."""
    script, log = tmp_path / "python", tmp_path / "log"
    script.write_text(
        f"""#!/bin/sh
        echo "$@" >> {log}
        while [ "$1" != --place ]; do shift; done
        case "$2" in 0) sleep 1;; 1) exit 0;; 2) exit 1;; 3) exit {os.EX_TEMPFAIL};; esac
        if [ "$2" = 4 ]; then
            for _ in $(seq 100); do [ $(wc -l < {log}) -ge 4 ] && exit 0; sleep 0.1; done
            exit 1
        fi
        """
    )
    script.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(script))
    return lambda: [line.split("reproduce ")[1] for line in log.read_text().splitlines()]


def runner(until=math.inf):
    return Runner(table=None, runs=None, say=print, until=until)


def test_a_process_that_has_ended_leaves_room_for_the_next_run(begun):
    assert in_processes(["t", "--quiet"], places=[4, 1, 1, 1], processes=2, runner=runner()) == ReproductionOutcome()
    assert sorted(begun()) == [f"t --quiet --place {place}" for place in (1, 1, 1, 4)]  # two begin at the same time


def test_of_more_processes_than_runs_one_makes_the_run(begun):
    assert in_processes(["t"], places=[1], processes=3, runner=runner()) == ReproductionOutcome()
    assert begun() == ["t --place 1"]


def test_each_process_gets_the_rest_of_the_budget(begun):
    until = time.monotonic() + 10
    in_processes(["t", "--budget", "1h"], places=[0, 1], processes=1, runner=runner(until))
    first, second = (float(re.fullmatch(r"t --place . --budget=(.*)s", line).group(1)) for line in begun())
    assert first <= 10
    assert second <= first - 1


@pytest.mark.parametrize(
    ("places", "stopped", "failed"), [([2, 1], None, True), ([3, 1], "budget", False), ([3, 2], "budget", True)]
)
def test_a_run_that_fails_or_is_not_finished_is_said_at_the_end(begun, places, stopped, failed):
    outcome = in_processes(["t", "--budget=1h"], places=places, processes=1, runner=runner())
    assert len(begun()) == 2
    assert (outcome.stopped, bool(outcome.failed)) == (stopped, failed)


def test_no_process_is_begun_without_time(begun):
    late = runner(time.monotonic() + 0.9)
    outcome = in_processes(["t"], places=[0, 1], processes=1, runner=late)
    assert len(begun()) == 1
    assert outcome.stopped == "budget"


def test_a_failed_run_is_said_also_where_the_budget_ends(capsys):
    assert command._alone(ReproductionOutcome(failed=["a run"], stopped="budget")) == 1
    assert command._alone(ReproductionOutcome(stopped="budget")) == os.EX_TEMPFAIL
    assert "a run" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_processes_save_when_their_caller_is_interrupted_or_killed(place, ending):
    command = [*COMMAND, "--minutes", "0.06", "--tasks", "1", "--seeds", "2"]
    folders = place / "runs" / "table1" / "10k-single" / "ut-halting" / "1"
    process = forked.start("ut", *command, "--processes", "2")
    try:
        deadline = time.monotonic() + 120
        while len(list(folders.glob("*/metrics.jsonl"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(process.pid, ending)
        process.join(60)
        assert process.exitcode == (130 if ending == signal.SIGINT else -ending)
        while len(list(folders.glob("*/checkpoints/*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        process.kill()
    assert not (place / "results" / "paper" / "table1.jsonl").exists()
    deadline = time.monotonic() + 120
    while main(command) != 0 and time.monotonic() < deadline:  # a process may still be saving
        time.sleep(0.2)
    assert sorted((line["seed"], line["resumes"]) for line in lines(place)) == [(0, 1), (1, 1)]


def test_the_budget_ends_runs_in_processes_and_the_next_call_continues(place, capsys):
    command = [*COMMAND, "--minutes", "0.3", "--tasks", "1", "--seeds", "2"]
    assert main([*command, "--processes", "2", "--budget", "5s"]) == 0
    assert "the budget is used up, 2 runs are left" in capsys.readouterr().err
    assert not (place / "results" / "paper" / "table1.jsonl").exists()
    assert len(list((place / "runs").rglob("checkpoints"))) == 2


def test_another_seed_or_budget_is_another_run(place, capsys):
    assert measure("--tasks", "1", "--seeds", "2") == 0
    assert "over 2 seeds" in (place / "results" / "paper" / "table1.md").read_text()
    assert main([*COMMAND, "--minutes", "0.003", "--tasks", "1"]) == 0
    found = lines(place)
    assert [line["seed"] for line in found] == [0, 1, 0]
    assert len({line["config"] for line in found}) == 3
    assert "--training.minutes 0.003" in found[2]["command"]


def test_a_folder_of_results_that_cannot_be_written_is_refused_before_the_work(place, capsys, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    assert measure("--tasks", "1") == 2
    assert "cannot be written to; results are kept in results/paper/table1.jsonl" in capsys.readouterr().err
    assert not (place / "runs").exists()


def test_a_run_that_fails_leaves_the_others_to_be_made(place, capsys, monkeypatch):
    from universal_transformer.errors import UserError

    make = Runner.make

    def failing(runner, run, **arguments):
        if run.row.endswith("/1"):
            raise UserError("the loss is not finite")
        return make(runner, run, **arguments)

    monkeypatch.setattr(Runner, "make", failing)
    assert measure("--tasks", "1,2,5") == 1
    failures = capsys.readouterr().err.splitlines()
    assert len(failures) == 2
    assert failures[0] == "ut: 10k-single/ut-halting/1 seed 0: the loss is not finite"
    assert "ut data fetch babi" in failures[1]
    assert [line["row"][-1] for line in lines(place)] == ["2"]


def test_a_plan_is_shown_and_a_table_written_without_training(place, capsys):
    assert measure("--tasks", "1,2", "--dry-run") == 0
    assert "0 of 2 runs are recorded; 2 to make" in capsys.readouterr().out
    assert main(["reproduce", "table4", "--columns", "copy", "--models", "ut", "--dry-run"]) == 0
    assert "1 to make: 1 limited by updates, not by time\n" in capsys.readouterr().out
    assert not (place / "results").exists()
    assert measure("--render") == 0
    assert "not measured" in (place / "results" / "paper" / "table1.md").read_text()
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["table9"], "tables that can be reproduced: table1"),
        ([], "required: TABLE"),
        (["table1", "--rows", "10k-single/ut-haltin/1"], "did you mean 10k-single/ut-halting/1"),
        (["table1", "--tasks", "21"], "no '21'"),
        (["table1", "--tasks", "1,,2"], "an empty name"),
        (["table1", "--columns", "1k-joint", "--tasks", "1"], "trains all tasks in one model"),
        (["table1", "--seeds", "0"], "expected a whole number, at least 1"),
        (["table1", "--minutes", "None"], "expected a number, more than 0"),
        (["table1", "--sedes", "1"], "did you mean --seeds"),
        (["table1", "--budget", "8"], "expected a time such as 90s, 8m or 1h30m"),
        (["table1", "--budget", "0m"], "expected a time such as 90s, 8m or 1h30m"),
        (["table4", "--tasks", "1"], "the rows of table4 are named PROBLEM/MODEL: leave it out"),
        (["table4", "--rows", "copy/utt"], "did you mean copy/ut"),
        (
            ["table7", "--columns", "multi30k"],
            "train.en.gz: no such file in the data folder",
        ),
        (["table7", "--columns", "wmt14"], "data/wmt14/train.en: no such file (nor train.en.gz)"),
        (["table1", "--data-dir", "none"], "ut data fetch babi"),
        (["table1", "--results", "bad"], "bad/table1.jsonl:1: "),
    ],
)
def test_a_mistake_gets_one_line_and_leaves_no_files(arguments, expected, place, capsys):
    (place / "bad").mkdir()
    line = '{"format": 1, "colour": "red"}\n'
    (place / "bad" / "table1.jsonl").write_text(line)
    before = sorted(place.rglob("*"))
    assert main(["reproduce", *arguments]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    assert expected in found
    assert sorted(place.rglob("*")) == before
    assert (place / "bad" / "table1.jsonl").read_text() == line


def test_an_option_given_again_adds_to_what_was_named():
    arguments = ["table1", "--tasks", "1", "2", "--tasks", "4", "--rows", "a"]
    options = parse(command.Reproduce, arguments, name="reproduce")
    assert (options.tasks, options.rows, options.columns) == (("1", "2", "4"), ("a",), ())
    assert parse(command.Reproduce, ["table1"], name="reproduce").tasks == ()
