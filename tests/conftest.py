"""Every test starts from the same seed and leaves torch's default type as it was."""

import itertools
import os
import re
from collections import Counter, defaultdict
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
import torch

import paper  # noqa: F401 - enters its tasks and recipes, as commands in a clone do
from universal_transformer.execution import policy
from universal_transformer.tasks import AlgorithmicData, BabiData, StoriesData
from universal_transformer.training import dry_run

DATA = Path(os.environ.get("UT_DATA") or Path(__file__).parents[1] / "../shared/data")

for profile, examples in (("each change", 20), ("nightly", 200)):
    hypothesis.settings.register_profile(
        profile,
        deadline=None,  # the first call of a shape pays for the compilation of its shape checks
        derandomize=True,  # a failure is reproducible
        max_examples=examples,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )


def pytest_addoption(parser):
    parser.addoption(
        "--checked-calls",
        type=int,
        default=100,
        metavar="N",
        help="with --jaxtyping-packages, check the shapes of the first N calls of each test (default: 100)",
    )
    parser.addoption(
        "--products",
        action="store_true",
        help="run whole products of three or more parameters (default: any two values of two of them together), all "
        "members of samples, and ten times the generated examples",
    )


def pytest_configure(config):
    """Before the tests are imported, as their decorators read the profile; what they call then is not checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    hypothesis.settings.load_profile("nightly" if config.getoption("--products") else "each change")


def pytest_collection_modifyitems(config, items):
    """Choose from products and samples; what may take longest comes first: no process waits for it at the end."""
    if not config.getoption("--products"):
        functions = defaultdict(list)
        for item in items:
            slow = item.get_closest_marker("slow") is not None  # then another item does not stand for it
            functions[item.path, item.originalname, slow].append(item)
        chosen = {item for of_function in functions.values() for item in sampled(covering(of_function))}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def covering(items):
    """Items of one function such that any two values of two of its parameters occur together in one of them.

    Of a function marked ``cover(1)``, each value occurs. The item with the most new combinations comes next;
    of several, the one whose values were chosen least often: each value meets a changing background.
    """
    marker = items[0].get_closest_marker("cover")
    together = marker.args[0] if marker else 2
    values = {item: values_of(item) for item in items}
    left = {item: set(itertools.combinations(values[item], together)) for item in items if len(values[item]) > together}
    chosen, covered, times = [item for item in items if item not in left], set(), Counter()
    while left := {item: new for item, combinations in left.items() if (new := combinations - covered)}:
        best = max(left, key=lambda item: (len(left[item]), -sum(times[value] for value in values[item])))
        chosen.append(best)
        covered.update(left[best])
        times.update(values[best])
    return chosen


def sampled(items):
    """Of a function marked ``sample(n)``, n items from the first to the last, evenly spread."""
    marker = items[0].get_closest_marker("sample")
    count = min(marker.args[0], len(items)) if marker else len(items)
    return [items[round(place * (len(items) - 1) / max(1, count - 1))] for place in range(count)]


def values_of(item):
    """What a test was given by each of its decorators `parametrize`, and by each parametrized fixture."""
    if not hasattr(item, "callspec"):
        return []
    given = item.callspec.params
    marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
    together = [tuple(re.findall(r"\w+", names if isinstance(names, str) else ",".join(names))) for names in marks]
    together += [(name,) for name in given if not any(name in names for names in together)]
    return [(names, *(id(given[name]) for name in names)) for names in together]


@pytest.hookimpl(tryfirst=True)
def check_first_calls(item):
    """The first calls of a test, and of its fixtures, are those that differ: checks of all calls take five times as
    long as the tests.
    """
    most, calls = item.config.getoption("--checked-calls"), itertools.count()
    type(jaxtyping.config).jaxtyping_disable = property(lambda _: next(calls) >= most)


pytest_runtest_setup = pytest_runtest_call = check_first_calls


@pytest.fixture(autouse=True)
def seed():
    """The same random numbers for every test, whichever others ran before it."""
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch):
    """What a test writes need not outlive a failure of power: half of the time of a small run is waiting for disks."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def timed_once(monkeypatch):
    """A dry run times one batch once: its figures are compared with those of runs in processes of their own."""
    monkeypatch.setattr(dry_run, "PASSES", 1)
    monkeypatch.setattr(dry_run, "COUNTED_BATCHES", 1)


LOADED = {}


@pytest.fixture
def loaded_once(monkeypatch):
    """The data of the models in the package are loaded by the first test that asks for them with this fixture."""
    for kind in (AlgorithmicData, BabiData, StoriesData):

        def load(data, saved=None, load=kind.load):
            key = data, os.environ.get("UT_DATA")
            if key not in LOADED:
                LOADED[key] = load(data, saved)
            return LOADED[key]

        monkeypatch.setattr(kind, "load", load)


@pytest.fixture
def shared_data(monkeypatch):
    """The folder of the real data sets; the test is skipped where there is none."""
    if not DATA.is_dir():
        pytest.skip(f"no data sets in {DATA}; name their folder with UT_DATA")
    monkeypatch.setenv("UT_DATA", str(DATA))
    return DATA


@pytest.fixture(autouse=True)
def compact_small_batches(request, monkeypatch):
    """Halted positions are left out of small batches too, because tests use small batches. A test with the marker
    ``default_policy`` runs with the policy as users have it.
    """
    if request.node.get_closest_marker("default_policy"):
        return
    monkeypatch.setattr(policy, "LEAST_SAVED", 0)
