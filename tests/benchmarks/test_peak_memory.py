"""Peak memory against tensors of known size."""

import pytest
import torch

from benchmarks.timing import peak_bytes

CPU = torch.device("cpu")
MEGABYTE = 2**20


def test_what_is_freed_before_the_next_allocation_counts_once():
    def work():
        for _ in range(5):
            torch.empty(MEGABYTE, dtype=torch.uint8)

    assert peak_bytes(work, device=CPU) == pytest.approx(MEGABYTE, rel=0.01)


def test_what_is_kept_for_backward_counts():
    weight = torch.randn(256, 256, requires_grad=True)
    weight.grad = torch.zeros_like(weight)

    def work(turns):
        states = torch.ones(1024, 256)
        for _ in range(turns):
            states = torch.tanh(states @ weight)
        states.sum().backward()

    step = peak_bytes(lambda: work(9), device=CPU) - peak_bytes(lambda: work(4), device=CPU)
    assert step == pytest.approx(5 * MEGABYTE, rel=0.2)  # the outputs of tanh are kept, one a turn
