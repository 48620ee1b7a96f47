"""A packed twin multiplies by the same matrices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import linear

from small import WIDTH, go, small_recurrence
from small_models import small
from universal_transformer.decoding import beam_search, generate
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.execution.packing import PackedLinear, packed, packs

KINDS = [kind for kind in (torch.float32, torch.bfloat16) if packs(torch.zeros(1, dtype=kind))]
pytestmark = pytest.mark.skipif(not KINDS, reason="this CPU's torch packs nothing")


@pytest.mark.parametrize("kind", KINDS)
@given(
    rows=st.lists(st.integers(0, 5), max_size=3),
    sizes=st.tuples(*[st.integers(1, 40)] * 2),
    bias=st.booleans(),
)
def test_a_packed_product_is_the_product(kind, rows, sizes, bias):
    module = nn.Linear(*sizes, bias=bias, dtype=kind)
    states = torch.randn(*rows, sizes[0], dtype=kind)
    with torch.inference_mode():
        found = PackedLinear(module.weight, module.bias)(states)
    exact = linear(states.double(), module.weight.double(), None if module.bias is None else module.bias.double())
    assert (found.shape, found.dtype) == (exact.shape, kind)
    torch.testing.assert_close(found.double(), exact.detach(), rtol=0, atol=4 * sizes[0] * torch.finfo(kind).eps)


@torch.no_grad()
def test_a_twin_shares_parameters_and_gives_the_same_states():
    module = small_recurrence(decoder=True, cross_attention=True, halting=True).float()
    twin, states = packed(module), torch.randn(2, 5, WIDTH)
    assert [type(part) for part in module.modules()].count(PackedLinear) == 0
    assert [type(part) for part in twin.modules()].count(nn.Linear) == 0
    assert all(a is b for a, b in zip(module.parameters(), twin.parameters(), strict=True))
    source = torch.randn(2, 4, WIDTH)
    (ours, trace), (expected, plain) = (go(each, states, source=source) for each in (twin, module))
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(trace.steps, plain.steps)


@torch.no_grad()
def test_a_twin_keeps_the_matrices_it_was_made_from():
    module, states = nn.Sequential(nn.Linear(3, 2)), torch.ones(1, 3)
    twin, before = packed(module), module(states)
    module[0].weight.zero_()
    torch.testing.assert_close(twin(states), before)


def test_other_formats_stay_as_they_are():
    module = nn.Sequential(nn.Linear(3, 2, dtype=torch.float64))
    assert not packs(module[0].weight)
    assert type(packed(module)[0]) is nn.Linear


@pytest.mark.parametrize("fields", [{}, {"halting": True}], ids=["fixed", "halting"])
def test_autocast_generates_too(fields):
    model, source = small(**fields).float(), torch.tensor([[3, 4, 5], [6, 7, 8]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = generate(model, source, DecodingOptions(max_new_tokens=4))
        assert beam_search(model, source, DecodingOptions(beams=2, max_new_tokens=4))
    assert [len(one.tokens) <= 4 for one in found] == [True, True]
