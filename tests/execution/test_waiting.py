"""A GPU is waited for at most once a depth step: reading a number from it stops the stream of work."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from small import WIDTH, cache_for, context_of, coordinates, go, right_padding, small_recurrence

WAITS = {
    "_local_scalar_dense",
    "lift_fresh",  # a tensor of numbers that the host has
    "nonzero",
    "is_nonzero",
    "masked_select",
    "bincount",
    "_unique2",
    "unique_dim",
}


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for a device: numbers read, and results whose size depends on values."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = name.startswith("index") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for index in (args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ())
        )
        sizes = name == "repeat_interleave" and isinstance(args[0], torch.Tensor) and len(args) == 1
        self.count += name in WAITS or masks or sizes
        return func(*args, **(kwargs or {}))


@pytest.fixture
def waits(monkeypatch):
    """The mode, which hears of ``tolist`` too."""
    mode, tolist = Waits(), torch.Tensor.tolist

    def heard(tensor):
        mode.count += 1
        return tolist(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", heard)
    return mode


def test_what_waits_is_counted(waits):
    x = torch.arange(4.0)
    reads = [lambda: int(x.sum()), lambda: bool(x.any()), x.nonzero, x.tolist, lambda: x[x > 1]]
    with waits:
        for each in (*reads, lambda: torch.tensor([1, 2])):
            before = waits.count
            each()
            assert waits.count == before + 1


@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"norm": "pre"},
        {"execution": "masked"},
        {"scope": "sequence"},
        {"transition": "separable_convolution"},
    ],
    ids=str,
)
def test_once_a_step(choices, decoder, batch, learn, waits):
    module = small_recurrence(
        decoder=decoder, cross_attention=decoder, halting=True, max_steps=20, bias=-3.0, **choices
    )
    module.halting.weight.data.mul_(0.1)
    states = torch.randn(batch, 6, WIDTH, dtype=torch.float64)
    padding = right_padding([6 - row % 3 for row in range(batch)], 6)
    source = torch.randn(batch, 3, WIDTH, dtype=torch.float64) if decoder else None
    with waits, torch.set_grad_enabled(learn):
        output, trace = go(module, states, padding=padding, source=source)
        if learn:
            (output[:, :1].sum() + trace.weight.sum()).backward()
    once = 2 if decoder else 1  # is any padding on the left, and at the start of the loop
    assert waits.count <= len(trace.weight) + once
    assert len(trace.weight) > 3


def test_once_a_step_with_learned_positions(waits):
    """That they lie in the table is asked once, not at every step."""
    learned = coordinates(max_steps=20, position="learned", max_positions=12)
    torch.nn.init.normal_(learned.position.weight)
    module = small_recurrence(halting=True, max_steps=20, bias=-3.0, coordinates=learned)
    states = torch.randn(3, 6, WIDTH, dtype=torch.float64)
    with waits:
        _, trace = go(module, states)
    assert waits.count <= len(trace.weight) + 2  # at the start of the loop, and this
    assert len(trace.weight) > 3


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_once_a_step_with_a_cache(norm, waits):
    module = small_recurrence(decoder=True, halting=True, norm=norm, max_steps=20, bias=-3.0)
    states, cache = torch.randn(5, 6, WIDTH, dtype=torch.float64), cache_for(module, batch=5, capacity=6)
    for place in range(6):
        encoding, waits.count = module.coordinates.position(torch.tensor([[place]])), 0
        with waits:
            _, trace = module(states[:, place : place + 1], context_of(module, 1, encoding=encoding, cache=cache))
        cache.length += 1
        assert waits.count <= len(trace.weight) + 2  # and which positions had halted when the others were left alone
