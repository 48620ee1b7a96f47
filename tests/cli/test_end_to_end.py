"""Train, evaluate, predict and plot as a user does, on models of a few thousand weights."""

import gzip
import io
import json
import math
import shutil
import sys

import pytest

from universal_transformer.cli import main
from universal_transformer.cli import predict as predict_command
from universal_transformer.cli.output import program

SMALL = ["--width", "16", "--filter-width", "16", "--num-heads", "2", "--max-steps", "3", "--minutes", "None"]
SMALL += ["--max-updates", "20", "--batch-tokens", "256", "--validate-every", "10", "--training.seed", "1"]
STORIES = ["--train-stories", "60", "--validation-stories", "10", "--test-stories", "10"]
QUESTIONS = "1 Clara went to the attic.\n2 Where is Clara?\n3 Boris took the lamp.\n4 Where is the lamp?\tattic\t1\n"


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """A run of 20 updates on stories."""
    folder = tmp_path_factory.mktemp("stories") / "run"
    assert main(["train", "stories", "--run", str(folder), "--quiet", *SMALL, *STORIES]) == 0
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A run of 20 updates on a TSV of 30 lines."""
    folder = tmp_path_factory.mktemp("pairs")
    words = ["red", "green", "blue", "old", "new"]
    lines = [f"{words[n % 5]} {words[n % 3]} {n}\t{words[n % 3]} {n} {words[n % 5]}\n" for n in range(30)]
    (folder / "own.tsv").write_text("".join(lines))
    given = ["--data.train", str(folder / "own.tsv"), "--tokenizer", "word", "--max-length", "8"]
    assert main(["train", "pairs", "--run", str(folder / "run"), "--quiet", *SMALL, *given]) == 0
    return folder / "run"


@pytest.fixture
def typed(monkeypatch):
    """Put bytes where standard input is."""

    def put(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def errors(shown):
    """Lines of standard error that are no warning."""
    return sum("warning:" not in line for line in shown.splitlines())


def test_training_leaves_a_run_and_says_what_to_do_next(stories, capsys, tmp_path, monkeypatch):
    for name in ("config.json", "metrics.jsonl", "checkpoints", "model/codec.json"):
        assert (stories / name).exists()
    monkeypatch.chdir(tmp_path)
    assert main(["train", "stories", *SMALL, *STORIES]) == 0
    shown = capsys.readouterr().out
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("stories-")
    assert "validation error" in shown
    for command in ("evaluate", "predict", "plot"):
        assert f"  ut {command} runs/{run.name}" in shown


@pytest.mark.parametrize(
    ("started", "named"),
    [
        ("/usr/bin/ut", "ut"),
        ("/lib/universal_transformer/__main__.py", "ut"),
        ("my members.py", "python 'my members.py'"),
    ],
)
def test_later_commands_are_of_the_program_that_was_started(started, named, monkeypatch):
    """A script may have registered members that a run needs."""
    monkeypatch.setattr(sys, "argv", [started, "train"])
    assert program() == named


def test_a_finished_run_is_not_overwritten(stories, capsys):
    before = (stories / "metrics.jsonl").read_bytes()
    assert main(["train", "stories", "--run", str(stories), *SMALL, *STORIES]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1
    for word in ("finished", f"ut evaluate {stories}", f"ut train --resume {stories}", "--run FOLDER"):
        assert word in found
    assert (stories / "metrics.jsonl").read_bytes() == before


def test_a_run_goes_on_with_a_higher_limit(tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", "stories", "--run", run, "--quiet", *SMALL, *STORIES]) == 0
    assert main(["train", "--resume", run, "--quiet", "--max-updates", "24"]) == 0
    assert "24 updates" in capsys.readouterr().out
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in events if line["event"] == "end"] == [24]


def test_a_finished_run_without_a_higher_limit_says_so(stories, tmp_path, capsys):
    shutil.copytree(stories, tmp_path / "run")
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    assert "a higher --max-updates continues it" in capsys.readouterr().err


@pytest.mark.parametrize("reason", ["minutes", "max_updates", "patience"])
def test_the_limit_that_ended_a_run_is_named(stories, tmp_path, reason, capsys):
    metrics = shutil.copytree(stories, tmp_path / "run") / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"stopped": "max_updates"', f'"stopped": "{reason}"'))
    assert main(["train", "stories", "--run", str(tmp_path / "run"), *SMALL, *STORIES]) == 2
    option = reason.replace("_", "-")
    assert f"ut train --resume {tmp_path}/run with a higher --{option} continues it" in capsys.readouterr().err


def test_evaluation_prints_a_table_and_writes_the_report(stories, capsys):
    assert main(["evaluate", str(stories)]) == 0
    shown = capsys.readouterr().out
    report = json.loads((stories / "report.json").read_text())
    assert report["split"] == "test"
    for word in ("1 fact", "2 facts", "3 facts", "error %", str(stories / "report.json")):
        assert word in shown


def test_evaluation_at_another_depth_keeps_the_report_of_the_run(stories, capsys):
    assert main(["evaluate", str(stories)]) == 0
    before = (stories / "report.json").read_bytes()
    capsys.readouterr()
    assert main(["evaluate", str(stories), "--max-steps", "1", "--split", "validation", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["max_steps"], printed["split"]) == (1, "validation")
    assert (stories / "report.json").read_bytes() == before
    assert json.loads((stories / "report-validation-steps-1.json").read_text()) == printed


def test_changed_data_are_noticed(stories, tmp_path, capsys):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(stories, copy)
    config = json.loads((copy / "config.json").read_text())
    config["data"]["fields"]["num_places"] = 9
    (copy / "config.json").write_text(json.dumps(config))
    assert main(["evaluate", str(copy)]) == 2
    assert "the data have changed since training" in capsys.readouterr().err


def test_one_result_for_each_question(stories, typed, capsys):
    typed(QUESTIONS.encode())
    assert main(["predict", str(stories)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(lines)


def test_the_same_from_a_file_and_as_json(stories, typed, tmp_path, capsys):
    (tmp_path / "questions.txt").write_bytes(b"\xef\xbb\xbf" + QUESTIONS.replace("\n", "\r\n").encode())
    assert main(["predict", str(stories), str(tmp_path / "questions.txt")]) == 0
    texts = capsys.readouterr().out.splitlines()
    typed(QUESTIONS.encode())
    assert main(["predict", str(stories), "--format=jsonl", "--choices", "2"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["text"] for one in found] == texts
    for one in found:
        assert one["choices"][0] == {"text": one["text"], "score": one["score"]}
        assert len(one["choices"]) == 2
        assert one["words"] == one["tokens"]
        assert all(1 <= word["steps"] <= 3 for word in one["words"])
    assert [word["text"] for word in found[0]["words"]] == ["clara went to the attic", "where is clara"]
    typed(QUESTIONS.encode())
    assert main(["predict", str(stories), "--format=tsv"]) == 0
    asked, answers = zip(*(line.split("\t") for line in capsys.readouterr().out.splitlines()), strict=True)
    assert list(answers) == texts
    assert asked[0] == "1 clara went to the attic 2 where is clara?"


def test_a_story_that_cannot_be_read_gives_no_results(stories, typed, capsys):
    typed(b"1 Clara went to the attic.\n2 Where is Clara?\n7 Where is Clara?\n")
    assert main(["predict", str(stories)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "ut: standard input:3: expected ID 1 or 3, found 7\n"


def test_the_report_is_drawn(stories, capsys):
    pytest.importorskip("matplotlib")
    assert main(["evaluate", str(stories)]) == 0
    assert main(["plot", str(stories)]) == 0
    assert str(stories / "report.html") in capsys.readouterr().out
    assert "<html" in (stories / "report.html").read_text()
    assert list((stories / "plots").glob("*.svg"))


@pytest.mark.claim("US 27")
def test_pairs_are_translated_line_by_line(pairs, typed, capsys):
    typed(b"red green 3\nold\nblue new 4\n")
    assert main(["predict", str(pairs)]) == 0
    assert len(capsys.readouterr().out.split("\n")) == 3 + 1


def test_every_line_has_its_result_whatever_it_holds(pairs, typed, capsys):
    """An empty line, a word never seen, and a line too long for the model, which alone is an error."""
    long = " ".join(["red"] * 20)
    typed(f"red\n\nzebra\n{long}\nblue\n".encode())
    assert main(["predict", str(pairs), "--format=jsonl"]) == 2
    shown = capsys.readouterr()
    found = [json.loads(line) for line in shown.out.splitlines()]
    assert [("error" in one) for one in found] == [False, False, False, True, False]
    assert errors(shown.err) == 1
    assert "warning: unknown words, 1 different in 1 of 5 lines: 'zebra'; --format jsonl" in shown.err
    assert "empty answers to empty lines: 1, first output line 2" in shown.err
    assert found[1]["text"] == ""
    assert [one.get("unknown") for one in found] == [[], [], ["zebra"], None, []]
    assert "standard input:4: a text of 21 tokens" in shown.err
    typed(f"{long}\n{long}\n".encode())
    assert main(["predict", str(pairs)]) == 2
    assert capsys.readouterr().out == "\n\n"


def test_answers_that_were_cut_carry_a_mark_and_one_warning(pairs, typed, capsys):
    typed(b"red\n" + b"old " * 20 + b"\nblue\n")
    assert main(["predict", str(pairs), "--format=jsonl", "--max-new-tokens", "1"]) == 2
    shown = capsys.readouterr()
    found = [json.loads(line) for line in shown.out.splitlines()]
    cut = [line for line, one in enumerate(found, start=1) if one.get("finished") is False]
    assert cut
    assert "error" in found[1]
    warning = f"ut: warning: {len(cut)} of 3 answers reached the limit of their length and may be cut, first that of "
    warning += f"output line {cut[0]}; "
    assert shown.err.splitlines()[1:] == [warning + "raise the limit with --max-new-tokens"]
    limit = json.loads((pairs / "model" / "config.json").read_text())["generation"]["max_new_tokens"]
    assert limit == 4 + 1 + 10  # three words and the end


def test_a_line_of_other_bytes_takes_no_other_line_with_it(pairs, typed, tmp_path, capsys):
    lines = b"red\n\xff\xfe\nblue\n"
    (tmp_path / "lines.txt").write_bytes(lines)
    for given, name in ([], "standard input"), ([str(tmp_path / "lines.txt")], "lines.txt"):
        typed(lines)
        assert main(["predict", str(pairs), *given, "--format=jsonl"]) == 2
        shown = capsys.readouterr()
        assert ["error" in json.loads(line) for line in shown.out.splitlines()] == [False, True, False]
        assert f"{name}:2: byte 0xff at byte 1 of the line is not UTF-8" in shown.err
        assert errors(shown.err) == 1


def test_what_was_read_before_a_file_broke_is_answered(pairs, tmp_path, capsys):
    whole = gzip.compress(b"red\nblue\n" + bytes(range(32, 127)) * 99 + b"\n")
    (tmp_path / "lines.gz").write_bytes(whole[: len(whole) - 9])
    assert main(["predict", str(pairs), str(tmp_path / "lines.gz")]) == 2
    shown = capsys.readouterr()
    assert shown.out.count("\n") >= 2
    assert "damaged gzip data" in shown.err.splitlines()[-1]


def test_on_a_terminal_the_reason_does_not_wait_for_a_good_line(pairs, monkeypatch, capsys):
    shown = []

    class Terminal(io.BytesIO):
        def readline(self, *limit):
            shown.append(capsys.readouterr())
            return super().readline(*limit)

        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal(b"\xff\nred\n\xff\n")))
    assert main(["predict", str(pairs)]) == 2
    assert [(one.out.count("\n"), one.err.count("\n")) for one in shown] == [(0, 0), (1, 1), (1, 0), (1, 1)]


def test_a_closed_standard_input_is_one_line(pairs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["predict", str(pairs)]) == 2
    assert capsys.readouterr().err.startswith("ut: standard input is closed; ")


def test_no_input_is_the_same_error_as_an_empty_file(pairs, typed, tmp_path, capsys):
    (tmp_path / "empty.txt").touch()
    for given, name in ([], "standard input is empty"), ([str(tmp_path / "empty.txt")], "the file is empty"):
        typed(b"")
        assert main(["predict", str(pairs), *given]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"{name}; expected at least one line of text" in shown.err


def test_a_line_longer_than_the_longest_is_an_error_and_a_long_one_is_named(pairs, typed, capsys, monkeypatch):
    monkeypatch.setattr(predict_command, "LONG", 3)
    typed(b"red\nred green blue old new\nold blue 3\nnew 4 blue\n")
    assert main(["predict", str(pairs), "--longest", "5", "--format=jsonl"]) == 2
    shown = capsys.readouterr()
    assert ["error" in json.loads(line) for line in shown.out.splitlines()] == [False, True, False, False]
    note, error = shown.err.splitlines()[:2]
    assert note == "ut: note: output line 3 has 4 tokens; answers to lines after it wait for it"
    assert error == "ut: output line 2: 6 tokens; expected at most --longest 5"
    assert predict_command.LONGEST < 10_000


def test_beams_and_samples(pairs, typed, capsys):
    for options in (
        ["--beams", "3", "--format=jsonl"],
        ["--temperature", "1", "--seed", "3"],
        ["--max-new-tokens", "2"],
    ):
        typed(b"red green 3\nold 7\n")
        assert main(["predict", str(pairs), *options]) == 0
        assert capsys.readouterr().out.count("\n") == 2


def test_pairs_are_scored(pairs, capsys):
    pytest.importorskip("sacrebleu")
    assert main(["evaluate", str(pairs)]) == 0
    assert "BLEU" in capsys.readouterr().out


@pytest.mark.parametrize(("recipe", "line"), [("text", "the n\n"), ("labelled", "the number 7\n")])
def test_text_and_labels_from_end_to_end(recipe, line, tmp_path, typed, capsys):
    file = tmp_path / "own.tsv"
    ends = "" if recipe == "text" else "\t{}"
    lines = (f"the number {n}" + ends.format(["even", "odd"][n % 2]) + "\n" for n in range(60))
    file.write_text("".join(lines))
    given = ["--data.train", str(file), "--block-length" if recipe == "text" else "--max-length", "24"]
    run = str(tmp_path / "run")
    assert main(["train", recipe, "--run", run, "--quiet", *SMALL, *given]) == 0
    assert main(["evaluate", run]) == 0
    capsys.readouterr()
    typed(line.encode() * 2)
    assert main(["predict", run]) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_the_demo_trains_tests_and_draws_and_is_quick_the_second_time(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    from universal_transformer.cli.fields import override
    from universal_transformer.recipes import RECIPES

    small = override(RECIPES["stories"](), [*SMALL, *STORIES], prog="ut demo")
    monkeypatch.setitem(RECIPES, "stories", lambda: small)
    monkeypatch.setattr("universal_transformer.cli.demo.TOLERANCE", "50%")  # of 30 examples
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    first = capsys.readouterr().out
    for word in ("chosen: confidence", "1 fact ", "2 facts", "3 facts", "all", "runs/demo/report.html"):
        assert word in first
    weights = (tmp_path / "runs" / "demo" / "model").stat().st_mtime
    assert main(["demo"]) == 0
    assert "trained already" in capsys.readouterr().out
    assert math.isclose((tmp_path / "runs" / "demo" / "model").stat().st_mtime, weights)


def test_an_interrupted_demo_goes_on(tmp_path, monkeypatch, capsys):
    """Ctrl-C after a few updates: 130, a line that says how to continue, and the next call ends the same run."""
    pytest.importorskip("matplotlib")
    import os
    import signal

    from universal_transformer.cli.fields import override
    from universal_transformer.recipes import RECIPES
    from universal_transformer.training.run import TrainingRun

    small = override(RECIPES["stories"](), [*SMALL, *STORIES], prog="ut demo")
    monkeypatch.setitem(RECIPES, "stories", lambda: small)
    monkeypatch.setattr("universal_transformer.cli.demo.TOLERANCE", "50%")  # of 30 examples
    monkeypatch.chdir(tmp_path)
    update = TrainingRun.update

    def interrupted(run):
        update(run)
        if run.state.update == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "update", interrupted)
        assert main(["demo"]) == 130
        assert "call ut demo (or make demo) again to continue" in capsys.readouterr().err
        assert main(["demo", "--run", "my demo"]) == 130
        assert "call ut demo --run 'my demo' again to continue" in capsys.readouterr().err
    assert main(["demo"]) == 0
    assert "continuing runs/demo after update 7" in capsys.readouterr().out
