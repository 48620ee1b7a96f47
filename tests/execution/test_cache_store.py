"""Halting with a cache: as many applications as the slowest new position needs, and the cache of the masked loop."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import small_models
from small import WIDTH, cache_for, context_of, coordinates, count_rows, piecewise, right_padding, small_recurrence
from universal_transformer.execution import policy
from universal_transformer.nn.recurrence import depth_loop

PIECES = st.lists(st.integers(1, 4), min_size=1, max_size=5)
BLANKS = st.lists(st.integers(0, 4), min_size=3, max_size=3)


def twins(**choices):
    """A halting decoder twice: as it is, and in the masked form."""
    module = small_recurrence(decoder=True, halting=True, **choices)
    masked = copy.deepcopy(module)
    masked.loop = depth_loop
    return module, masked


CHOICES = [
    {},
    {"cross_attention": True, "output": "interpolate", "remainder_at_cap": False},
    {"output": "final", "max_steps": 12, "coordinates": coordinates(step="none")},
    {"coordinates": coordinates(injection="input"), "max_steps": 9},
    {"norm": "pre", "cross_attention": True},
    {"norm": "deep", "cross_attention": True},
    {"norm": "pre", "max_steps": 12, "coordinates": coordinates(step="none")},
    {"layers_per_step": 2, "cross_attention": True},
    {"layers_per_step": 3, "norm": "pre", "max_steps": 9},
    {"coordinates": coordinates(position="rotary")},
    {"coordinates": coordinates(position="rotary"), "norm": "pre", "cross_attention": True, "rotary_source": True},
    {"coordinates": coordinates(position="rotary", step="none"), "norm": "pre", "layers_per_step": 2},
]


@pytest.mark.cover(1)
@pytest.mark.parametrize("below", [0.0, 0.75, 2.0], ids=["never compact", "as it is", "always compact"])
@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(c))
@settings(max_examples=5)
@given(pieces=PIECES, blanks=BLANKS)
def test_outputs_steps_and_the_cache_itself_are_those_of_all_steps(choices, below, pieces, blanks):
    length, found = sum(pieces), []
    states = torch.randn(3, length, WIDTH, dtype=torch.float64)
    padding = torch.arange(length) < torch.tensor(blanks).unsqueeze(1)
    padding = None if sum(blanks) % 3 == 0 else padding
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "COMPACT_BELOW", below)
        for module in twins(**choices):
            memory = None
            if module.blocks[0].cross_attention is not None:
                source = torch.ones(3, 4, WIDTH, dtype=torch.float64).cumsum(1)
                where = module.coordinates.position(torch.arange(4).unsqueeze(0))
                hidden = right_padding((4, 2, 3), 4)
                memory = module.project_source(source, padding=hidden, rotary=where.rotary)
            cache = cache_for(module, batch=3, capacity=length)
            found.append((*piecewise(module, states, pieces, cache=cache, padding=padding, source=memory), cache))
    real = torch.ones(3, length, dtype=torch.bool) if padding is None else ~padding
    (ours, steps, cache), (wanted, all_steps, full) = found
    torch.testing.assert_close(ours[real], wanted[real])
    assert torch.equal(steps, all_steps)
    torch.testing.assert_close(cache.entries[:, real], full.entries[:, real])


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("pieces", [[1] * 8, [5, 1, 2]])
@torch.no_grad()
def test_a_call_applies_the_block_as_often_as_its_slowest_position_steps(pieces, norm):
    module, _ = twins(max_steps=50, norm=norm)
    rows = count_rows(module)
    states = torch.randn(4, 8, WIDTH, dtype=torch.float64)
    cache, applied, made = cache_for(module, batch=4, capacity=8), 0, []
    for count in pieces:
        rows.clear()
        end = cache.length + count
        where = torch.arange(cache.length, end).unsqueeze(0)
        call = context_of(module, count, encoding=module.coordinates.position(where), cache=cache)
        _, trace = module(states[:, cache.length : end], call)
        cache.length = end
        assert len(rows) == len(trace.weight) == trace.steps.max() < 50
        for step, computed in enumerate(rows):
            running = int((trace.steps > step).sum())
            assert running <= computed <= running / policy.COMPACT_BELOW
        applied, made = applied + sum(rows), [*made, trace.steps]
    assert applied < 1.4 * torch.cat(made, dim=1).sum()
    assert len(torch.cat(made, dim=1).unique()) > 2


@torch.no_grad()
def test_rows_without_a_token_keep_no_loop_alive():
    module, _ = twins(max_steps=50, bias=1000.0)
    calls = count_rows(module)
    cache = cache_for(module, batch=2, capacity=3)
    padding = torch.tensor([[False], [True]])
    encoding = module.coordinates.position(torch.tensor([[0], [0]]))
    call = context_of(module, 1, encoding=encoding, padding=padding, cache=cache, stored_padding=padding)
    _, trace = module(torch.randn(2, 1, WIDTH, dtype=torch.float64), call)
    assert (len(calls), trace.steps.tolist()) == (1, [[1.0], [0.0]])


@pytest.mark.parametrize(
    "choices",
    [
        {"state": "evolving"},
        {"transition": "separable_convolution"},
    ],
    ids=str,
)
@torch.no_grad()
def test_who_cannot_be_served_from_the_last_entry_makes_all_steps(choices):
    module, _ = twins(max_steps=7, bias=1000.0, **choices)
    states = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    convolution = choices.get("transition") is not None
    cache = cache_for(module, batch=2, capacity=3, convolution=convolution)
    _, trace = module(states, context_of(module, 3, cache=cache))
    assert len(trace.weight) == 7
    assert (trace.steps == 1).all()


def test_positions_are_added_with_gradients_too():
    model = small_models.small(architecture="language_model", halting=True)
    tokens = torch.randint(3, 9, (2, 3))
    state = model.start(batch=2, capacity=4)
    before = torch.cat([torch.ones_like(tokens[:, :1]), tokens[:, :-1]], dim=1)
    found = torch.cat([model.target.advance(before[:, place : place + 1], state) for place in range(3)], dim=1)
    torch.testing.assert_close(found, model(tokens).logits, rtol=1e-5, atol=1e-6)
