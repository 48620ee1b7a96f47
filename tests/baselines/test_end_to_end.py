"""Baselines by the same commands as our model: train, evaluate, predict, plot."""

import io
import json

import pytest

from universal_transformer.cli import main

SMALL = ["--max-updates", "8", "--batch-tokens", "128", "--validate-every", "4", "--warmup-updates", "2"]
DATA = ["--train-lengths", "1", "6", "--test-lengths", "6", "12", "--train-examples", "64", "--device", "cpu"]
FEW = ["--validation-examples", "8", "--test-examples", "4"]


@pytest.mark.parametrize("recipe", ["copy-lstm", "copy-neural-gpu"])
def test_a_baseline_from_end_to_end(recipe, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    width = ["--model.width", "8"]
    assert main(["train", recipe, *SMALL, *DATA, *FEW, *width, "--dry-run"]) == 0
    assert "parameters" in capsys.readouterr().out
    assert main(["train", recipe, "--run", str(run), *SMALL, *DATA, *FEW, *width]) == 0
    assert "steps" not in capsys.readouterr().out
    assert main(["evaluate", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "sequence accuracy" in shown
    assert "steps" not in shown
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"123\n4\n")))
    assert main(["predict", str(run), "--format=jsonl"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[token["steps"] for token in line["tokens"]] for line in lines] == [[None] * 3, [None]]
    assert main(["train", "--resume", str(run), "--max-updates", "10", "--quiet"]) == 0
    assert main(["evaluate", str(run), "--max-steps", "3"]) == 2
    assert "has no depth to choose" in capsys.readouterr().err
    kept = json.loads((run / "model" / "config.json").read_text())
    assert kept["kind"] in recipe.replace("-", "_")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"123\n")))
    assert main(["predict", str(run), "--beams", "2"]) == 0


def test_the_report_of_a_baseline_shows_no_steps(tmp_path):
    pytest.importorskip("matplotlib")
    run = str(tmp_path / "run")
    assert main(["train", "copy-lstm", "--run", run, "--quiet", *SMALL, *DATA, *FEW, "--model.width", "8"]) == 0
    assert main(["plot", run]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Scores" in page
    assert "Thinking time" not in page


def test_data_that_a_baseline_cannot_take_are_refused(tmp_path):
    file = tmp_path / "own.tsv"
    file.write_text("".join(f"the number {n}\t{n % 2}\n" for n in range(40)))
    from universal_transformer.recipes import RECIPES
    from universal_transformer.recipes.variants import neural_gpu

    config = neural_gpu(RECIPES["labelled"]())
    with pytest.raises(ValueError, match="a Neural GPU maps a sequence of tokens to another"):
        type(config.data)(train=str(file)).load().configure(config.model)
