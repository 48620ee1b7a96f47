"""`ut bench` with tiny sizes: it runs, and reports what it measured on which machine."""

import json
import warnings
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.command import CASES
from benchmarks.peers import installed
from benchmarks.result import Settings, render
from universal_transformer.cli import main

SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in ("train", "continuous", "startup", "positions")]


@pytest.mark.parametrize("case", ["halting", "decode", "sweep", *SLOW])
def test_a_case_gives_a_table_and_json(case, tmp_path, capsys):
    target = tmp_path / "bench.json"
    with warnings.catch_warnings():
        if installed("transformers"):
            warnings.simplefilter("ignore")  # from other libraries
        assert main(["bench", case, "--quick", "--json", str(target), "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("case ")
    found = json.loads(target.read_text())
    assert found["threads"] == 1
    assert found["settings"]["quick"] is True
    assert found["versions"]["torch"] == torch.__version__
    assert found["machine"]["processor"]
    for each in found["measurements"]:
        assert each["case"] == case
        assert each["name"] in shown
        if each["ratio"] is not None and each["bound"] is not None:
            assert each["share"] == pytest.approx(each["ratio"] / each["bound"])
    if case == "halting":
        assert sum(found["measurements"][0]["details"]["steps_histogram"]) == 24


def test_the_case_gpu_runs():
    """On a CPU with tiny sizes: the figures mean nothing, but the table is complete."""
    found = gpu.measure(torch.device("cpu"), Settings(seconds=0.01, quick=True))
    assert len(render(found).splitlines()) == len(found) + 2
    assert [each.details["error"] for each in found if "error" in each.details] == []


def test_a_failure_on_a_gpu_is_one_line_and_the_other_cases_run():
    found = gpu.attempt("training, compiled", lambda: 1 / 0)
    assert found.name == "training, compiled: failed"
    assert "ZeroDivisionError" in found.details["error"]
    assert "training, compiled: failed" in render([found])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_gpu_case_is_one_line(capsys):
    assert main(["bench", "gpu"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "ut: ut bench gpu needs a CUDA GPU, and torch sees none here"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["haltign"], "no benchmark 'haltign' (did you mean halting?)"),
        (["--seconds", "0"], "expected a number, more than 0"),
        (["--threads", "x"], "expected a whole number, at least 1"),
        (["train", "--json", "no/such/folder.json"], "there is no folder no/such"),
        (["train", "--json", "."], "--json .: this is a folder"),
        (
            ["train", "decode", "--plots", "."],
            "--plots .: the figures are of the case sweep, found train decode",
        ),
        (["sweep", "--plots", "no/such"], "--plots no/such: there is no such folder"),
    ],
)
def test_a_mistake_is_one_line(arguments, said, capsys):
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_every_case_has_its_module():
    from importlib import import_module

    for name in CASES:
        assert callable(import_module(f"benchmarks.{name}").run)


@pytest.mark.parametrize("measurements", [[1], [{}], [{"details": {"by": "length"}}], 3])
def test_a_file_of_other_measurements_is_one_line(measurements, tmp_path, capsys):
    file, whole = tmp_path / "bench.json", {"machine": {"processor": "x"}, "versions": {"torch": "2"}, "threads": 1}
    file.write_text(json.dumps(whole | {"measurements": measurements}))
    assert main(["bench", "--read", str(file), "--markdown"]) == 2
    assert capsys.readouterr().err == f"ut: {file}: not a file that ut bench --json wrote\n"


def test_one_command_measures_draws_and_writes_tables(tmp_path, capsys):
    """Saved measurements give the same tables and the same figures, byte for byte."""
    first, again, target = tmp_path / "first", tmp_path / "again", tmp_path / "bench.json"
    first.mkdir()
    again.mkdir()
    command = ["bench", "sweep", "--quick", "--json", str(target), "--markdown", "--plots"]
    assert main([*command, str(first)]) == 0
    table = capsys.readouterr().out
    found = json.loads(target.read_text())
    assert "### sweep" in table
    for each in found["measurements"]:
        row = next(line for line in table.splitlines() if line.startswith(f"| {each['name']} |"))
        assert each["ratio"] is None or f"| {each['ratio']:.2f} |" in row
    assert main(["bench", "--read", str(target), "--markdown", "--plots", str(again)]) == 0
    assert capsys.readouterr().out == table
    names = sorted(path.name for path in first.iterdir())
    assert names == ["cost_by_depth.png", "cost_by_length.png", "halting_saving.png"]
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--read", "none.json", "--markdown"], "none.json: no such file"),
        (["--read", "other.json", "--markdown"], "other.json: expected a JSON object"),
        (["--read", "empty.json", "--plots", "."], "no measurements against mean steps in this file"),
        (["--read", "empty.json", "--plots", "none"], "none: there is no such folder"),
        (["--read", "empty.json"], "give the output too"),
        (["sweep", "--read", "empty.json", "--markdown"], "it takes no cases"),
    ],
)
def test_what_cannot_be_read_or_drawn_is_one_line(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text("[]")
    conditions = {"machine": {}, "versions": {}, "threads": 1, "settings": {}}
    (tmp_path / "empty.json").write_text(json.dumps({**conditions, "measurements": []}))
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_tables_of_the_documentation_are_those_of_the_data(capsys):
    results = Path(__file__).parents[2] / "results" / "bench"
    assert main(["bench", "--read", str(results / "cpu.json"), "--markdown"]) == 0
    assert capsys.readouterr().out == (results / "cpu.md").read_text()
