"""Every test starts from the same seed and leaves torch's default type as it was."""

import os
from pathlib import Path

import hypothesis
import pytest
import torch
from torch.nn.attention import flex_attention

from universal_transformer.nn import flex, worth

DATA = Path(os.environ.get("UT_DATA") or Path(__file__).parents[1] / "../shared/data")

hypothesis.settings.register_profile(
    "laws",
    deadline=None,  # the first call of a shape pays for the compilation of its shape checks
    derandomize=True,  # a red test is red again
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("laws")


@pytest.fixture(autouse=True)
def seed():
    """The same random numbers for every test, whichever others ran before it."""
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture
def shared_data(monkeypatch):
    """The folder of the real data sets; the test is skipped where there is none."""
    if not DATA.is_dir():
        pytest.skip(f"no data sets in {DATA}; name their folder with UT_DATA")
    monkeypatch.setenv("UT_DATA", str(DATA))
    return DATA


@pytest.fixture(autouse=True)
def compact_whatever_it_saves(monkeypatch):
    """Small batches, too, leave out halted positions: the tests' batches are small, and what is tested is exactness."""
    monkeypatch.setattr(worth, "WORTH", 0)


@pytest.fixture
def flex_through(monkeypatch):
    """Called with a kernel: FlexAttention goes through it on a CPU too, with gradients, which torch refuses there."""

    def through(kernel):
        monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
        monkeypatch.setattr(flex, "kernel", lambda _: kernel)
        monkeypatch.setattr(flex, "EAGER", True)

    return through


@pytest.fixture
def eager_flex(monkeypatch, flex_through):
    """FlexAttention on a CPU, as torch's plain operations and with gradients. Gives what was attended with it."""
    calls = []

    def counted(*parts, **choices):
        calls.append(1)
        return flex_attention.flex_attention(*parts, **choices)

    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    flex_through(counted)
    return calls
