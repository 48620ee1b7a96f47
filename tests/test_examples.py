"""Every example runs as a user would run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forked

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "onnx_answers")
"""All but the one that `cli/test_export.py` runs with the model that it exports."""


NEEDS = {"ray_train": "ray", "trackio_tracker": "trackio", "optuna_search": "optuna"}
"""Packages that are not installed for the tests; without them an example is not run."""


SHORTER = {
    "minimal": ("range(101)", "range(11)"),
    "own_halting_rule": ("updates=400", "updates=40"),
    "own_task": ('"60"', '"11"'),
    "own_treebank": ('"40"', '"10"'),
    "pictures": ("6, 3, 150", "6, 3, 15"),
    "sounds": ("3, 300", "3, 30"),
    "training_loop": ("range(150)", "range(15)"),
    "turing_machine": (" 1000, ", " 20, "),
}
"""Example -> its number of updates or tapes, and fewer of them, which run the same code."""


@pytest.mark.parametrize("length", ["shorter", pytest.param("whole", marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_runs(path, length, tmp_path):
    pytest.importorskip(NEEDS.get(path.stem, "universal_transformer"))
    if length == "shorter" and path.stem in SHORTER:
        text, shorter = path.read_text(encoding="utf-8"), SHORTER[path.stem]
        assert shorter[0] in text
        path = tmp_path / path.name
        path.write_text(text.replace(*shorter), encoding="utf-8")
    done = forked.run(path, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    cells = json.loads((ROOT / "examples" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "after  6 steps  0 cells are wrong" in done.stdout
