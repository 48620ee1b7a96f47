import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import oracles
from small import FILTER, WIDTH, right_padding, stir
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.transition import FeedForward, SeparableConvolution


def states(batch, length):
    return torch.randn(batch, length, WIDTH, dtype=torch.float64)


def feed_forward(**choices):
    return stir(FeedForward(WIDTH, filter_width=FILTER, **choices)).double().eval()


def convolution(*, causal, **choices):
    return stir(SeparableConvolution(WIDTH, filter_width=FILTER, causal=causal, **choices)).double().eval()


def test_feed_forward_is_the_naive_loop():
    module, x = feed_forward(), states(2, 3)
    naive = [[oracles.feed_forward(module, list(row), i) for i in range(3)] for row in x]
    torch.testing.assert_close(module(x), torch.stack([torch.stack(row) for row in naive]))


def test_feed_forward_gives_nothing_at_padding_when_asked():
    x, padding = states(2, 3), right_padding([3, 1], 3)
    zeroed, plain = feed_forward(zero_padding=True), feed_forward()
    zeroed.load_state_dict(plain.state_dict())
    assert torch.equal(zeroed(x, padding=padding)[~padding], plain(x, padding=padding)[~padding])
    assert (zeroed(x, padding=padding)[padding] == 0).all()
    assert (plain(x, padding=padding)[padding] != 0).any()


@pytest.mark.parametrize("causal", [False, True])
@given(length=st.integers(1, 9))
def test_convolution_is_the_naive_loop(causal, length):
    module, x = convolution(causal=causal), states(2, length)
    naive = [[oracles.convolution(module, list(row), i, causal=causal) for i in range(length)] for row in x]
    ours = module(x)
    torch.testing.assert_close(ours, torch.stack([torch.stack(row) for row in naive]))
    if length > 1:
        wrong = torch.stack([oracles.convolution(module, list(row), 0, causal=not causal) for row in x])
        assert (ours[:, 0] - wrong).abs().max() > 1e-4


@pytest.mark.parametrize("causal", [False, True])
def test_convolution_does_not_see_padding(causal):
    module, x = convolution(causal=causal), states(3, 7)
    padding = right_padding([7, 4, 1], 7)
    ours = module(x, padding=padding)
    for row, length in enumerate((7, 4, 1)):
        torch.testing.assert_close(ours[row, :length], module(x[row : row + 1, :length])[0])
    if not causal:
        assert (ours - module(x))[1, :4].abs().max() > 1e-3


def test_padding_on_the_left_is_silence():
    module, x = convolution(causal=True), states(1, 7)
    padding = torch.tensor([[True, True, True, False, False, False, False]])
    torch.testing.assert_close(module(x, padding=padding)[:, 3:], module(x[:, 3:]))


@given(at=st.integers(0, 9))
def test_causal_convolution_does_not_see_the_future_and_reaches_6_back(at):
    module, x = convolution(causal=True), states(1, 10)
    changed = x.clone()
    changed[:, at] += 1.0
    moved = (module(x) - module(changed)).abs().amax(dim=(0, 2)) > 1e-12
    assert not moved[:at].any()
    assert moved[at]
    assert not moved[at + SeparableConvolution.REACH + 1 :].any()


@given(pieces=st.lists(st.integers(1, 4), min_size=1, max_size=5), first=st.integers(0, 3))
def test_convolution_piece_by_piece_is_the_whole(pieces, first):
    module, length = convolution(causal=True), sum(pieces)
    x = states(2, length)
    padding = torch.zeros(2, length, dtype=torch.bool)
    padding[1, : min(first, length)] = True
    whole = module(x, padding=padding)
    cache = KeyValueCache(
        1,
        batch=2,
        num_heads=2,
        capacity=length,
        width=WIDTH,
        convolution=True,
        dtype=x.dtype,
        device=x.device,
    )
    for count in pieces:
        end = cache.length + count
        piece = module(x[:, cache.length : end], padding=padding[:, :end], cache=cache.layer(0))
        torch.testing.assert_close(piece, whole[:, cache.length : end])
        cache.length = end


@pytest.mark.parametrize("make", [feed_forward, lambda **choices: convolution(causal=True, **choices)])
def test_dropout_after_the_relu_only_while_training(make):
    module, x = make(dropout=0.5), states(1, 4)
    assert torch.equal(module(x), module(x))
    module.train()
    assert not torch.equal(module(x), module(x))


def by_hand(states, module):
    hidden = functional.linear(states, module.inner.weight, module.inner.bias).relu()
    return functional.linear(hidden, module.outer.weight, module.outer.bias)


def noisy_feed_forward():
    module = FeedForward(8, filter_width=12)
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
    found, expected = module(states), by_hand(states, module)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    pairs = [torch.autograd.grad(output, some, direction) for output in (found, expected)]
    torch.testing.assert_close(*pairs, rtol=1e-4, atol=1e-3)


def far(found, exact):
    pairs = [
        (one.detach().double(), other.detach().double()) for one, other in zip(found, exact, strict=True)
    ]
    return [float((one - other).norm() / other.norm().clamp_min(1e-9)) for one, other in pairs]


def gradients(output, inputs, direction):
    return [output, *torch.autograd.grad(output, inputs, direction.to(output.dtype))]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["autocast", "all in 16 bits"])
@given(rows=st.tuples(st.integers(1, 3), st.integers(2, 5)))
def test_trained_in_bfloat16_it_is_as_near_to_the_formula_as_torch_is(kind, rows):
    module, states = noisy_feed_forward().to(kind), torch.randn(*rows, 8).to(kind).requires_grad_()
    direction, inputs = torch.randn(*rows, 8).bfloat16(), [states, *module.parameters()]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == torch.float32):
        found, simple = module(states), by_hand(states, module)
    assert found.dtype == simple.dtype == torch.bfloat16
    ours, theirs = (gradients(output, inputs, direction) for output in (found, simple))
    assert [each.dtype for each in ours[1:]] == [kind] * len(inputs)
    # A step of bfloat16 is 2**-8; where a sum is near 0, the sign that ReLU sees may differ from the exact one.
    assert max(far(ours, theirs)) < 2**-6


def test_in_autocast_gradients_of_many_uses_are_summed_in_the_type_of_the_weights():
    module, states = noisy_feed_forward(), torch.randn(64, 8)

    def slopes(uses):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total = torch.stack([module(states).float().sum() for _ in range(uses)]).sum()
        return torch.autograd.grad(total, list(module.parameters()))

    torch.testing.assert_close(slopes(32), tuple(32 * each for each in slopes(1)), rtol=1e-5, atol=1e-4)


def test_a_gradient_of_a_gradient_is_that_of_the_formula():
    module, states = noisy_feed_forward(), torch.randn(2, 3, 8, requires_grad=True)
    results = []
    for output in (module(states), by_hand(states, module)):
        (slope,) = torch.autograd.grad(output.square().sum(), states, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), [states, *module.parameters()]))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-1)
