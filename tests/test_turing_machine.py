"""The compiled machines of the example: random tables, and machines with a known result."""

import importlib.util
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from universal_transformer.nn.context import Context

SPEC = importlib.util.spec_from_file_location(
    "turing_machine", Path(__file__).parent.parent / "examples" / "turing_machine.py"
)
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


@pytest.mark.claim("section 4")
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    states=st.integers(1, 6),
    symbols=st.integers(1, 3),
    limit=st.integers(1, 12),
)
def test_any_machine_is_compiled_exactly(seed, states, symbols, limit):
    draw = Random(seed)
    machine = example.random_machine(draw, states=states, symbols=symbols)
    texts = ["".join(draw.choices(machine.symbols, k=4)) for _ in range(4)]
    example.compare(machine, [machine.tape(text, margin=limit) for text in texts], limit=limit)


def written(machine, text):
    tape, _ = machine.run(machine.tape(text, margin=1), limit=10_000)
    return "".join(symbol for _, symbol in tape).strip("#_")


@given(number=st.integers(0, 1000))
def test_the_increment_is_one_more(number):
    assert written(example.INCREMENT, f"{number:b}") == f"{number + 1:b}"


@given(left=st.integers(1, 9), right=st.integers(0, 9))
def test_the_addition_adds(left, right):
    assert written(example.ADDITION, "1" * left + "+" + "1" * right) == "1" * (left + right)


@given(text=st.text("ab", min_size=1, max_size=9))
def test_the_checker_knows_palindromes(text):
    assert ("Y" in written(example.PALINDROME, text)) == (text == text[::-1])


def test_the_busy_beaver_is_the_champion():
    tape, steps = example.BUSY_BEAVER.run(example.BUSY_BEAVER.tape("_", margin=6), limit=100)
    assert steps == 14
    assert [symbol for _, symbol in tape].count("1") == 6


@pytest.mark.parametrize("sublayer", ["after_attention", "after_transition"])
def test_the_norms_are_used(sublayer):
    """Without one of the norms the machine does not work, so that no norm is bypassed."""
    machine = example.INCREMENT
    tapes = [machine.tape("1011", margin=1)]
    recurrence, channels = example.compile_machine(machine, longest=len(tapes[0]))
    right = machine.run(tapes[0], limit=50)
    assert example.run_transformer(recurrence, channels, tapes, limit=50)[0] == [right[0]]
    with torch.no_grad():
        getattr(recurrence.blocks[0], sublayer).norm.weight.zero_()
    assert example.run_transformer(recurrence, channels, tapes, limit=50)[0] != [right[0]]


def test_states_stay_exact_however_long_it_runs():
    """After hundreds of steps every channel is 0 or 1 up to the rounding of one step."""
    machine = example.COUNTER
    tape = machine.tape("0" * 6, margin=1)
    _, steps = machine.run(tape, limit=2000)
    recurrence, channels = example.compile_machine(machine, longest=len(tape))
    table = torch.stack([channels.start(cell) for cell in channels.cells])
    states = table[torch.tensor([[channels.cells.index(cell) for cell in tape]])]
    encoding = recurrence.coordinates.position(torch.arange(len(tape))[None])
    context = Context(depth=recurrence.depth(max_steps=2000), encoding=encoding)
    with torch.no_grad():
        states, trace = recurrence(states, context)
    content = states[..., : channels.content]
    assert (trace.steps == steps).all()
    assert steps > 200
    assert (content - content.round()).abs().max() < 1e-5
