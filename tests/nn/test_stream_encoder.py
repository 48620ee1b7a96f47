"""Sequences that share calls at steps of their own become what each becomes alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from small import HEADS, WIDTH, go, small_recurrence
from universal_transformer.errors import UserError
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.stream_encoder import encode_continuously, streams

RULES = [("mean", True), ("interpolate", False), ("final", True)]


def coordinates(**choices):
    module = Coordinates(WIDTH, num_heads=HEADS, max_steps=9, max_positions=9, **choices)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


PLACES = {
    "sinusoids": {},
    "no steps": {"step": "none"},
    "at the input": {"every_step": False},
    "learned": {"position": "learned", "step": "learned"},
    "from the end": {"end": True},
    "nothing": {"position": "none", "step": "none"},
}


def sequences_of(lengths):
    return [torch.randn(length, WIDTH, dtype=torch.float64) for length in lengths]


def check(module, sequences, *, slots, capacity, **depth):
    """Every sequence comes out once, as it is alone; returns the order in which they did."""
    found = list(encode_continuously(module, sequences, slots=slots, capacity=capacity, **depth))
    order = [number for number, _ in found]
    assert sorted(order) == list(range(len(sequences)))
    for number, encoded in found:
        with torch.no_grad():
            states, trace = go(module, sequences[number].unsqueeze(0), **depth)
        alone = (states[0], trace.steps[0], trace.remainder[0])
        torch.testing.assert_close(tuple(encoded), alone, rtol=1e-10, atol=1e-10)
    return order


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("output", "remainder_at_cap"), RULES)
@pytest.mark.parametrize("name", PLACES)
def test_as_alone(name, output, remainder_at_cap, norm):
    module = small_recurrence(
        norm=norm, halting=True, max_steps=9, coordinates=coordinates(**PLACES[name]),
        output=output, remainder_at_cap=remainder_at_cap,
    )  # fmt: skip
    check(module, sequences_of((3, 9, 1, 5, 5, 2, 8, 4)), slots=3, capacity=9)


MODULES = {norm: small_recurrence(norm=norm, halting=True, max_steps=7) for norm in ("post", "pre")}


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 7), max_size=12),
    slots=st.integers(1, 6),
    room=st.sampled_from((0, 3, 1100)),
    max_steps=st.integers(1, 8),
    threshold=st.sampled_from((0.2, 0.9, 1.0)),
    norm=st.sampled_from(("post", "pre")),
)
def test_any_lengths_any_order_any_depth(lengths, slots, room, max_steps, threshold, norm):
    check(
        MODULES[norm], sequences_of(lengths), slots=slots, capacity=7 + room, max_steps=max_steps,
        threshold=threshold,
    )  # fmt: skip


def test_what_is_through_leaves_before_what_came_earlier():
    module = small_recurrence(halting=True, max_steps=9, coordinates=coordinates())
    order = check(module, sequences_of([1] * 16), slots=8, capacity=400)
    assert order != sorted(order)


def test_reads_only_as_far_as_there_are_slots():
    module, read = small_recurrence(halting=True, max_steps=9), []

    def endless():
        while True:
            read.append(1)
            yield torch.randn(3, WIDTH, dtype=torch.float64)

    stream = encode_continuously(module, endless(), slots=4, capacity=300)
    next(stream)
    assert len(read) <= 4


@pytest.mark.parametrize("count", [0, 6])
def test_a_sequence_that_does_not_fit_is_refused(count):
    module = small_recurrence(halting=True)
    with pytest.raises(UserError, match=r"sequences of \d to \d positions, where 1 to 5 can be encoded"):
        list(encode_continuously(module, sequences_of((2, count)), slots=2, capacity=5))
    with pytest.raises(UserError, match="slots=0, capacity=5: at least 1 each"):
        encode_continuously(module, [], slots=0, capacity=5)


def test_which_recurrences():
    assert streams(small_recurrence(halting=True))
    assert not streams(small_recurrence())
    assert not streams(small_recurrence(halting=True, decoder=True))
    assert not streams(small_recurrence(halting=True, scope="sequence"))
    assert not streams(small_recurrence(halting=True, state="evolving"))
    assert not streams(small_recurrence(halting=True, form="masked"))
