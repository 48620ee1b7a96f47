"""Every test starts from the same seed, on one thread, and leaves torch's defaults as they were."""

import os

import hypothesis
import pytest
import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile(
    "laws",
    deadline=None,  # the first call of a shape pays for its compilation of shape checks
    derandomize=True,  # a red test is red again
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("laws")


@pytest.fixture(autouse=True)
def seed():
    """The same random numbers for every test, whichever others run before it."""
    torch.manual_seed(0)
    dtype = torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
