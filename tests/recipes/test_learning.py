"""What the README promises, trained for real: minutes each, so only `make nightly` runs them."""

import dataclasses

import pytest

from universal_transformer.cli.demo import CHANGES, RECIPE
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.recipes import RECIPES
from universal_transformer.registry import load_pretrained
from universal_transformer.runs.trainer import train
from universal_transformer.typed import replaced

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def errors(config, folder):
    """Test error by group after training `config`."""
    task = config.data.load()
    train(config, folder, task=task, quiet=True)
    report = evaluate(load_pretrained(folder / "model"), task)
    return {row.group: row.metrics["error"] for row in report.rows}


def test_the_demo_learns_one_supporting_fact(tmp_path):
    assert errors(replaced(RECIPES[RECIPE](), CHANGES), tmp_path / "run")["1 fact"] <= 2.0


@pytest.mark.usefixtures("shared_data")
def test_babi_task_1_in_two_minutes(tmp_path):
    recipe = RECIPES["babi"]()
    config = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, minutes=2.0))
    assert all(error <= 1.0 for error in errors(config, tmp_path / "run").values())


def test_sudoku_of_4_x_4_cells_in_two_minutes(tmp_path):
    config = RECIPES["sudoku-4"]()
    task = config.data.load()
    train(config, tmp_path / "run", task=task, quiet=True)
    report = evaluate(load_pretrained(tmp_path / "run" / "model"), task)
    assert report.totals[0].metrics["sequence_accuracy"] >= 0.99
