"""Positions spread over processes give what one process gives, and every process receives what the formula says."""

import json
from pathlib import Path

import pytest

import forked
from small_models import small
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.errors import UserError
from universal_transformer.execution.context_parallel import make_context_parallel
from universal_transformer.models.components import VocabularyConfig
from universal_transformer.registry import build

from .context_parallel import RUNS

SCRIPT = Path(__file__).with_name("context_parallel.py")
TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What `context_parallel.py` writes."""
    file = tmp_path_factory.mktemp("context_parallel") / "found.json"
    done = forked.run(SCRIPT, file)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(file.read_text())


@pytest.mark.claim("US FIG. 1")
@pytest.mark.parametrize(("size", "name"), [(size, name) for size, names in RUNS.items() for name in names])
def test_any_number_of_processes_computes_the_same(found, size, name):
    largest, differs = found[str(size)]["differences"][name]
    assert largest < TOLERANCE, differs


def test_processes_halt_after_different_steps(found):
    """A process whose positions have all halted serves keys and values until those of all others have."""
    assert found["4"]["lasted"]["halting"] == [3, 5, 3, 1]
    assert found["2"]["lasted"]["halting"] == [5, 3]
    assert found["4"]["lasted"]["language model"] == [5, 2, 3, 1]


@pytest.mark.parametrize("size", RUNS)
@pytest.mark.parametrize("kind", ["inference", "training", "checkpointed"])
def test_the_exchanged_bytes_are_those_of_the_formula(found, size, kind):
    """B rows of n positions, width d, T steps of one block, s bytes a number, P processes (docs/running.md)."""
    sizes = found[str(size)]["sizes"]
    share = (size - 1) * sizes["rows"] * -(-sizes["length"] // size)
    passes = {"inference": 1, "training": 2, "checkpointed": 3}[kind]
    ends = 1 if kind == "inference" else 2
    keys_and_values = passes * 2 * sizes["width"] * sizes["steps"]
    states, figures = ends * sizes["width"], 2
    assert found[str(size)][kind] == 8 * share * (keys_and_values + states + figures)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"transition": "separable_convolution"}, "a transition of neighbours"),
    ],
)
def test_a_model_whose_positions_interact_otherwise_is_refused(fields, reason):
    with pytest.raises(UserError, match=reason):
        make_context_parallel(small(**fields))


def test_a_model_without_a_recurrence_is_refused():
    config = LstmConfig(architecture="language_model", vocabulary=VocabularyConfig(size=9))
    with pytest.raises(UserError, match="has no recurrence over depth"):
        make_context_parallel(build(config))
