"""The CPU kernels have the values and gradients of the formulas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from small import context
from universal_transformer.execution.kernels import attend, install_kernels
from universal_transformer.nn.config import Sizes, TransitionConfig
from universal_transformer.nn.transition import FeedForward


def by_hand(states, module):
    hidden = functional.linear(states, module.inner.weight, module.inner.bias).relu()
    return functional.linear(hidden, module.outer.weight, module.outer.bias)


def noisy_feed_forward():
    module = FeedForward(Sizes(width=8, filter_width=12), TransitionConfig())
    install_kernels(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


@given(rows=st.tuples(st.integers(1, 3), st.integers(0, 4)), frozen=st.sets(st.integers(0, 4), max_size=4))
def test_trained_in_float32_it_has_the_gradients_of_the_formula(rows, frozen):
    module, states = noisy_feed_forward(), torch.randn(*rows, 8, requires_grad=True)
    direction, inputs = torch.randn(*rows, 8), [states, *module.parameters()]
    for place in frozen:
        inputs[place].requires_grad_(False)
    some = [each for each in inputs if each.requires_grad]
    found, expected = module(states, context()), by_hand(states, module)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    pairs = [torch.autograd.grad(output, some, direction) for output in (found, expected)]
    torch.testing.assert_close(*pairs, rtol=1e-4, atol=1e-3)


def far(found, exact):
    pairs = [(one.detach().double(), other.detach().double()) for one, other in zip(found, exact, strict=True)]
    return [float((one - other).norm() / other.norm().clamp_min(1e-9)) for one, other in pairs]


def gradients(output, inputs, direction):
    return [output, *torch.autograd.grad(output, inputs, direction.to(output.dtype))]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["autocast", "all in 16 bits"])
@given(rows=st.tuples(st.integers(1, 3), st.integers(2, 5)))
def test_trained_in_bfloat16_it_is_as_near_to_the_formula_as_torch_is(kind, rows):
    module, states = noisy_feed_forward().to(kind), torch.randn(*rows, 8).to(kind).requires_grad_()
    direction, inputs = torch.randn(*rows, 8).bfloat16(), [states, *module.parameters()]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == torch.float32):
        found, simple = module(states, context()), by_hand(states, module)
    assert found.dtype == simple.dtype == torch.bfloat16
    ours, theirs = (gradients(output, inputs, direction) for output in (found, simple))
    assert [each.dtype for each in ours[1:]] == [kind] * len(inputs)
    # A step of bfloat16 is 2**-8; where a sum is near 0, the sign that ReLU sees may differ from the exact one.
    assert max(far(ours, theirs)) < 2**-6


def test_in_autocast_gradients_of_many_uses_are_summed_in_the_type_of_the_weights():
    module, states = noisy_feed_forward(), torch.randn(64, 8)

    def slopes(uses):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total = torch.stack([module(states, context()).float().sum() for _ in range(uses)]).sum()
        return torch.autograd.grad(total, list(module.parameters()))

    torch.testing.assert_close(slopes(32), tuple(32 * each for each in slopes(1)), rtol=1e-5, atol=1e-4)


def test_a_gradient_of_a_gradient_is_that_of_the_formula():
    module, states = noisy_feed_forward(), torch.randn(2, 3, 8, requires_grad=True)
    results = []
    for output in (module(states, context()), by_hand(states, module)):
        (slope,) = torch.autograd.grad(output.square().sum(), states, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), [states, *module.parameters()]))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-1)


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1, 700), (2, 5, 5), (2, 3, 40)])
@pytest.mark.parametrize("autocast", [False, True])
def test_short_attention_in_16_bits_on_a_cpu_is_that_of_float32_rounded(cast, shape, autocast):
    batch, asked, stored = shape
    query, key, value = (torch.randn(batch, 2, n, 8).to(cast).requires_grad_() for n in (asked, stored, stored))
    direction = torch.randn(batch, 2, asked, 8)
    exact = [each.detach().float().requires_grad_() for each in (query, key, value)]
    causal = asked == stored
    with torch.autocast("cpu", dtype=cast, enabled=autocast):
        found = attend(query, key, value, causal=causal)
    expected = attend(*exact, causal=causal)
    assert torch.equal(found, expected.to(cast))
    slopes = torch.autograd.grad(found, [query, key, value], direction.to(cast))
    wanted = torch.autograd.grad(expected, exact, direction.to(cast).float())
    for ours, theirs in zip(slopes, wanted, strict=True):
        assert torch.equal(ours, theirs.to(cast))
