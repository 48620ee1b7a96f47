"""A decoder's position depends on itself and on what is to its left: outputs, steps and probabilities alike."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from small import WIDTH, coordinates, go, small_recurrence
from universal_transformer.models.components import TRANSITIONS

CHOICES = [
    {"norm": norm, "transition": transition, "halting": halting, "state": state}
    for norm in ("post", "pre")
    for transition in TRANSITIONS
    for halting, state in ((False, "frozen"), (True, "frozen"), (True, "evolving"))
] + [{"norm": norm, "layers_per_step": 2, "halting": True} for norm in ("post", "pre")]


def moved(module, *, at, length=6):
    """Which positions change, in output or in steps, when everything from ``at`` on does."""
    states = torch.randn(2, length, WIDTH, dtype=torch.float64)
    changed = states.clone()
    changed[:, at:] = torch.randn(2, length - at, WIDTH, dtype=torch.float64)
    (one, first), (two, second) = go(module, states), go(module, changed)
    difference = (one - two).abs().amax(dim=(0, 2)) > 1e-10
    return difference | (first.steps != second.steps).any(dim=0)


@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
@settings(max_examples=8)
@given(at=st.integers(1, 5))
def test_the_future_changes_nothing(choices, at):
    found = moved(small_recurrence(decoder=True, **choices), at=at)
    assert not found[:at].any()
    assert found[at:].all()


@pytest.mark.claim("figure 1")
@pytest.mark.parametrize("choices", CHOICES[::5], ids=lambda c: "-".join(map(str, c.values())))
def test_an_encoder_does_see_it(choices):
    assert moved(small_recurrence(decoder=False, **choices), at=4)[:4].any()


def test_rotary_decoders_are_causal_too():
    rotary = coordinates(position="rotary")
    assert not moved(small_recurrence(decoder=True, coordinates=rotary), at=3)[:3].any()


def test_halting_a_whole_sequence_at_once_would_look_ahead():
    """Why configurations refuse it: the tests above do notice."""
    assert moved(small_recurrence(decoder=True, halting=True, scope="sequence"), at=3)[:3].any()


def test_a_longer_neighbour_does_not_change_when_others_stop():
    """The loop runs until the last position of the batch halts; those that halted earlier do not notice."""
    module = small_recurrence(decoder=True, halting=True, max_steps=30)
    states = torch.randn(6, 5, WIDTH, dtype=torch.float64)
    together, trace = go(module, states)
    assert len(trace.steps.amax(dim=1).unique()) > 1
    for row in range(6):
        alone, single = go(module, states[row : row + 1])
        torch.testing.assert_close(alone[0], together[row])
        assert torch.equal(single.steps[0], trace.steps[row])
