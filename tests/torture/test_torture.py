"""A small share of the cases of each figure of reliability, with the same seeds; and faults that counting must notice.

The others, which are slow here, have tests of their own: T1 and T6 `runs/test_trainer.py`, `runs/test_folder.py`,
T3 `runs/test_checkpoint.py`, T4 and T5 `training/test_processes.py`, F1 `cli/test_damaged_models.py`, F4
`data/test_download.py`, N1 `runs/test_resume.py`, N2 `training/test_watches.py`, N3 and N4 `runs/test_trainer.py`, N5
`nn/test_compiled.py`, N6 the laws.
"""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torture.folders import watched
from torture.outcome import Outcome

TESTS = Path(__file__).parents[1]


@pytest.mark.timeout(900)  # it forks hundreds of processes, and other tests run beside it
@pytest.mark.parametrize(
    "figures",
    [
        "T2,F2,F3",  # in one process, which imports torch once
        *(
            pytest.param(figures, marks=pytest.mark.slow)
            for figures in ("T1", "T3,T6", "F1", "N1", "N2,N4", "T4", "T5", "N3", "N5", "N6,F4")
        ),
    ],
)
def test_a_share_of_the_cases_of_each_figure_holds(figures):
    done = subprocess.run(
        [sys.executable, "-m", "torture", "--only", figures, "--share", "0.01" if figures == "F1" else "0.03"],
        env=os.environ | {"PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert [line.split()[:2] for line in done.stdout.splitlines()[:-1]] == [
        [one, "holds:"] for one in figures.split(",")
    ]


def test_a_figure_that_is_unknown_or_does_not_hold_is_an_error():
    done = subprocess.run(
        [sys.executable, "-m", "torture", "--only", "T9"],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no figure T9; there are T1" in done.stderr
    outcome = Outcome()
    assert not outcome.holds
    outcome.add("one", [])
    assert outcome.holds
    outcome.add("two", ["wrong"])
    assert not outcome.holds
    assert str(outcome) == "1 of 2; FAILED two: wrong"


FAULTS = {
    "reads": lambda: [os.close(os.open("/", os.O_RDONLY))],
    "writes": lambda: [os.close(os.open(os.devnull, os.O_WRONLY))],
    "unpickles": lambda: [pickle.loads(pickle.dumps(Outcome))],  # noqa: S301
    "starts": lambda: [subprocess.run(["true"], check=True)],
    "raises": lambda: [1 / 0],
    "ends": lambda: [os.kill(os.getpid(), signal.SIGKILL)],
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a worker of the tests has threads when it forks
def test_what_a_case_should_not_do_is_noticed(tmp_path):
    _, problems = watched(list(FAULTS), tmp_path, FAULTS.__getitem__)
    assert problems.keys() == FAULTS.keys()
    assert watched(["sound"], tmp_path, lambda _: list)[1] == {}
