"""No wrong call of the Python API passes silently, or ends in another exception than a ValueError of one line."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "wrong_calls.py"


def test_wrong_calls_are_refused_in_one_line_that_says_what_to_do():
    # in a process of its own, in which annotations are not executed
    run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
