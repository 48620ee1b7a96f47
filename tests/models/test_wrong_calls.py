"""No wrong call of the Python API passes silently, or ends in another exception than a ValueError of one line."""

from pathlib import Path

import forked

SCRIPT = Path(__file__).parents[1] / "wrong_calls.py"


def test_wrong_calls_are_refused_in_one_line_that_says_what_to_do():
    # in a process of its own, in which annotations are not executed
    done = forked.run(SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr
