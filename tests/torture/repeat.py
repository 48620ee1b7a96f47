"""A plugin of pytest: each test as often as the environment variable TIMES says, each time from another seed."""

import os

import pytest
import torch


def pytest_generate_tests(metafunc):
    """Give each test a parameter that is the number of its repetition."""
    metafunc.fixturenames.append("repetition")
    metafunc.parametrize("repetition", range(int(os.environ.get("TIMES", "1"))), indirect=True)


@pytest.fixture
def repetition(request):
    """The number of the repetition."""
    return request.param


def pytest_runtest_call(item):
    """Begin from the seed of the repetition, after all fixtures."""
    torch.manual_seed(item.callspec.params["repetition"])
