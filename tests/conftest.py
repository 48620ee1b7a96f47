"""Every test starts from the same seed and leaves torch's default type as it was."""

import hypothesis
import pytest
import torch

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
