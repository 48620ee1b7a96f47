"""The example of a Neural Turing Machine against loops over cells and channels."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

SPEC = importlib.util.spec_from_file_location(
    "neural_turing_machine", Path(__file__).parent.parent / "examples" / "neural_turing_machine.py"
)
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


def weights(memory, key, strength):
    """Content addressing (Graves et al. 2014, equations 5 and 6), cell by cell."""
    similar = []
    for cell in memory:
        product = sum(a * b for a, b in zip(key, cell, strict=True))
        similar.append(product / math.hypot(*key) / math.hypot(*cell))
    raised = [math.exp(strength * value) for value in similar]
    return [value / sum(raised) for value in raised]


def naive(memory, *, read, write, erase, add):
    """Reading and writing (equations 2 to 4)."""
    cells, channels = range(len(memory)), range(len(add))
    reading, writing = weights(memory, *read), weights(memory, *write)
    result = [sum(reading[i] * memory[i][c] for i in cells) for c in channels]
    written = [[memory[i][c] * (1 - writing[i] * erase[c]) + writing[i] * add[c] for c in channels] for i in cells]
    return result, written


@pytest.mark.claim("section 4")
@given(seed=st.integers(0, 2**32), cells=st.integers(1, 7), channels=st.integers(1, 5))
def test_a_step_is_a_read_and_a_write_of_a_neural_turing_machine(seed, cells, channels):
    draw = torch.Generator().manual_seed(seed)
    memory, vectors = (torch.randn(n, channels, dtype=torch.float64, generator=draw) for n in (cells, 4))
    (read, write, add), erase = vectors[:3], vectors[3].sigmoid()
    first, second = (torch.rand(2, generator=draw).double() * 20).tolist()
    result, written = example.read_and_write(memory, read=(read, first), write=(write, second), erase=erase, add=add)
    keys = {"read": (read.tolist(), first), "write": (write.tolist(), second)}
    expected = naive(memory.tolist(), **keys, erase=erase.tolist(), add=add.tolist())
    torch.testing.assert_close(result, torch.tensor(expected[0], dtype=torch.float64), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(written, torch.tensor(expected[1], dtype=torch.float64), rtol=1e-10, atol=1e-10)
