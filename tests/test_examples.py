"""Every example runs as a user would run it, and the README shows the training loop."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


NEEDS = {"ray_train": "ray"}
"""Packages that are not installed for the tests; without them an example is not run."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_runs(path, tmp_path):
    pytest.importorskip(NEEDS.get(path.stem, "universal_transformer"))
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readme_shows_the_training_loop():
    code = (ROOT / "examples" / "training_loop.py").read_text().split('"""\n\n', 1)[1]
    assert code in (ROOT / "README.md").read_text()
