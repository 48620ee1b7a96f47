"""Position by position with a cache, or all at once: the same."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from small import WIDTH, cache_for, context_of, coordinates, go, piecewise, right_padding, small_recurrence
from universal_transformer.errors import UserError

PIECES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


CHOICES = [
    {},
    {"norm": "pre"},
    {"transition": "separable_convolution"},
    {"tied": False, "layers_per_step": 2, "max_steps": 2},
    {"halting": True},
    {"halting": True, "layers_per_step": 2},
    {"halting": True, "norm": "rms", "key_value_heads": 1},
    {"halting": True, "state": "evolving", "output": "interpolate", "remainder_at_cap": False},
    {"halting": True, "output": "final", "norm": "pre", "transition": "separable_convolution"},
]


@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
@settings(max_examples=10)
@given(pieces=PIECES)
def test_piece_by_piece_is_all_at_once(choices, pieces):
    module = small_recurrence(decoder=True, cross_attention=True, **choices)
    states = torch.randn(2, sum(pieces), WIDTH, dtype=torch.float64)
    source, hidden = torch.randn(2, 4, WIDTH, dtype=torch.float64), right_padding((4, 2), 4)
    whole, trace = go(module, states, source=source, source_padding=hidden)
    cache = cache_for(module, batch=2, capacity=sum(pieces), convolution=choices.get("transition") is not None)
    memory = module.project_source(source, padding=hidden)
    ours, steps = piecewise(module, states, pieces, cache=cache, source=memory)
    torch.testing.assert_close(ours, whole)
    assert torch.equal(steps, trace.steps)


@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
@settings(max_examples=10)
@given(pieces=PIECES, blanks=st.lists(st.integers(0, 5), min_size=2, max_size=2))
def test_ragged_prompts_padded_on_the_left_are_their_real_tokens_alone(choices, pieces, blanks):
    module, length = small_recurrence(decoder=True, **choices), sum(pieces)
    states = torch.randn(2, length, WIDTH, dtype=torch.float64)
    padding = torch.arange(length) < torch.tensor(blanks).unsqueeze(1)
    cache = cache_for(module, batch=2, capacity=length, convolution=choices.get("transition") is not None)
    ours, steps = piecewise(module, states, pieces, cache=cache, padding=padding)
    for row, blank in enumerate(blanks):
        if blank < length:
            alone, trace = go(module, states[row : row + 1, blank:])
            torch.testing.assert_close(ours[row, blank:], alone[0])
            assert torch.equal(steps[row, blank:], trace.steps[0])
    assert (steps[padding] == 0).all()


def test_rotary_positions_and_another_depth_are_cached_too():
    rotary = coordinates(position="rotary")
    module = small_recurrence(decoder=True, halting=True, coordinates=rotary)
    states = torch.randn(2, 6, WIDTH, dtype=torch.float64)
    whole, _ = go(module, states, max_steps=9, threshold=0.8)
    cache = cache_for(module, batch=2, capacity=6, max_steps=9)
    ours, _ = piecewise(module, states, [2, 1, 3], cache=cache, max_steps=9, threshold=0.8)
    torch.testing.assert_close(ours, whole)


def test_a_forgetful_cache_would_be_noticed():
    module, states = small_recurrence(decoder=True), torch.randn(1, 4, WIDTH, dtype=torch.float64)
    whole, _ = go(module, states)
    cache = cache_for(module, batch=1, capacity=4)
    piecewise(module, states[:, :3], [3], cache=cache)
    cache.entries[0, :, 1, :WIDTH] = 0.0  # its key
    encoding = module.coordinates.position(torch.tensor([[3]]))
    last, _ = module(states[:, 3:], context_of(module, 1, encoding=encoding, cache=cache))
    assert (last[:, 0] - whole[:, 3]).abs().max() > 1e-4


@pytest.mark.parametrize("rows", [[2, 2, 0], [1], [2, 0], [0, 1, 2, 2]])
@torch.no_grad()
def test_rows_may_be_reordered_repeated_and_left_out(rows):
    module = small_recurrence(decoder=True, halting=True)
    states, index = torch.randn(3, 5, WIDTH, dtype=torch.float64), torch.tensor(rows)
    cache = cache_for(module, batch=3, capacity=5)
    piecewise(module, states[:, :3], [3], cache=cache)
    cache.reorder(index)
    encoding = module.coordinates.position(torch.tensor([[3, 4]]))
    rest, _ = module(states[index, 3:], context_of(module, 2, encoding=encoding, cache=cache))
    whole, _ = go(module, states[index])
    torch.testing.assert_close(rest, whole[:, 3:])


def test_capacity_is_kept_and_said():
    module = small_recurrence(decoder=True, layers_per_step=2, max_steps=3)
    assert module.num_slots(3) == 6
    assert module.num_slots(5) == 10
    cache = cache_for(module, batch=1, capacity=4)
    assert cache.capacity == 4
    cache.check(4)
    cache.length = 3
    cache.check(1)
    with pytest.raises(UserError, match=r"3 \+ 2 positions do not fit a cache of capacity 4"):
        cache.check(2)
    with pytest.raises(UserError, match="capacity=0"):
        cache_for(module, batch=1, capacity=0)
