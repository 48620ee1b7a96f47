"""`ut bench` with tiny sizes: it runs, and reports what it measured on which machine."""

import json
import warnings
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.command import CASES
from benchmarks.peers import installed
from benchmarks.result import Settings, markdown, render
from benchmarks.sweep import draw_saving
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
            "--plots .: the figure is of the case sweep, found train decode",
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


def test_one_command_measures_draws_and_writes_tables(tmp_path, capsys):
    """Saved measurements give the same figure, byte for byte."""
    target = tmp_path / "bench.json"
    assert main(["bench", "sweep", "--quick", "--json", str(target), "--markdown", "--plots", str(tmp_path)]) == 0
    table, found = capsys.readouterr().out, json.loads(target.read_text())
    assert "### sweep" in table
    for each in found["measurements"]:
        row = next(line for line in table.splitlines() if line.startswith(f"| {each['name']} |"))
        assert f"| {each['ratio']:.2f} |" in row
    drawn = (tmp_path / "halting_saving.svg").read_bytes()
    assert b"times faster than" in drawn
    assert draw_saving(found, tmp_path).read_bytes() == drawn


def test_the_tables_of_the_documentation_are_those_of_the_data():
    results = Path(__file__).parents[2] / "results" / "bench"
    made = markdown(json.loads((results / "cpu.json").read_text()))
    assert f"{made}\n" == (results / "cpu.md").read_text()
