import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from small import SIZES, WIDTH, context, right_padding, stir
from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.models.convolution import SeparableConvolution, SingleSeparableConvolution
from universal_transformer.nn.step_config import TransitionConfig
from universal_transformer.nn.transition import FeedForward


def states(batch, length):
    return torch.randn(batch, length, WIDTH, dtype=torch.float64)


def feed_forward(**choices):
    return stir(FeedForward(SIZES, TransitionConfig(**choices))).double().eval()


def convolution(kind=SeparableConvolution, *, causal, **choices):
    return stir(kind(SIZES, TransitionConfig(**choices), causal=causal)).double().eval()


kinds = pytest.mark.parametrize("kind", [SeparableConvolution, SingleSeparableConvolution])


@pytest.mark.claim("US 6", "US 19")
def test_feed_forward_is_the_naive_loop():
    module, x = feed_forward(), states(2, 3)
    naive = [[oracles.feed_forward(module, list(row), i) for i in range(3)] for row in x]
    torch.testing.assert_close(module(x, context()), torch.stack([torch.stack(row) for row in naive]))


@pytest.mark.claim("US 7", "US 20")
@kinds
@pytest.mark.parametrize("causal", [False, True])
@given(length=st.integers(1, 9))
def test_convolution_is_the_naive_loop(kind, causal, length):
    module, x = convolution(kind, causal=causal), states(2, length)
    naive = [[oracles.convolution(module, list(row), i, causal=causal) for i in range(length)] for row in x]
    ours = module(x, context())
    torch.testing.assert_close(ours, torch.stack([torch.stack(row) for row in naive]))
    if length > 1:
        wrong = torch.stack([oracles.convolution(module, list(row), 0, causal=not causal) for row in x])
        assert (ours[:, 0] - wrong).abs().max() > 1e-4


@kinds
@pytest.mark.parametrize("causal", [False, True])
def test_convolution_does_not_see_padding(kind, causal):
    module, x = convolution(kind, causal=causal), states(3, 7)
    padding = right_padding([7, 4, 1], 7)
    ours = module(x, context(padding=padding))
    for row, length in enumerate((7, 4, 1)):
        torch.testing.assert_close(ours[row, :length], module(x[row : row + 1, :length], context())[0])
    if not causal:
        assert (ours - module(x, context()))[1, :4].abs().max() > 1e-3


def test_padding_on_the_left_is_silence():
    module, x = convolution(causal=True), states(1, 7)
    padding = torch.tensor([[True, True, True, False, False, False, False]])
    torch.testing.assert_close(module(x, context(padding=padding))[:, 3:], module(x[:, 3:], context()))


@kinds
@given(at=st.integers(0, 9))
def test_causal_convolution_does_not_see_the_future_and_reaches_some_positions_back(kind, at):
    module, x = convolution(kind, causal=True), states(1, 10)
    changed = x.clone()
    changed[:, at] += 1.0
    moved = (module(x, context()) - module(changed, context())).abs().amax(dim=(0, 2)) > 1e-12
    assert not moved[:at].any()
    assert moved[at]
    assert moved.tolist() == [at <= place <= at + kind.REACH for place in range(10)]


@kinds
@given(pieces=st.lists(st.integers(1, 4), min_size=1, max_size=5), first=st.integers(0, 3))
def test_convolution_piece_by_piece_is_the_whole(kind, pieces, first):
    module, length = convolution(kind, causal=True), sum(pieces)
    x = states(2, length)
    padding = torch.zeros(2, length, dtype=torch.bool)
    padding[1, : min(first, length)] = True
    whole = module(x, context(padding=padding))
    cache = KeyValueCache(
        1,
        batch=2,
        num_heads=2,
        capacity=length,
        width=WIDTH,
        convolution=WIDTH,
        like=x,
    )
    for count in pieces:
        end = cache.length + count
        call = context(padding=padding[:, cache.length : end], stored_padding=padding[:, :end], cache=cache)
        piece = module(x[:, cache.length : end], call)
        torch.testing.assert_close(piece, whole[:, cache.length : end])
        cache.length = end


@pytest.mark.parametrize("make", [feed_forward, lambda **choices: convolution(causal=True, **choices)])
def test_dropout_after_the_relu_only_while_training(make):
    module, x = make(dropout=0.5), states(1, 4)
    assert torch.equal(module(x, context()), module(x, context()))
    module.train()
    assert not torch.equal(module(x, context()), module(x, context()))
