import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import coordinate
from small import coordinates
from universal_transformer.errors import UserError
from universal_transformer.models.positions.numbering import count_positions, reverse_positions
from universal_transformer.models.positions.rotary import rotate
from universal_transformer.nn.coordinates import sinusoid

LAYOUTS = ("interleaved", "split")


def timed(module, states, *, encoding, step, num_steps):
    """``X = H + P^t``."""
    return module(states, encoding, step=step, signals=module.signals(num_steps, like=states))


@pytest.mark.claim("equation 6")
@given(
    index=st.lists(st.integers(0, 500), min_size=1, max_size=5),
    half=st.integers(1, 20),
    layout=st.sampled_from(LAYOUTS),
)
def test_sinusoid_is_the_naive_loop(index, half, layout):
    width = 2 * half
    ours = sinusoid(torch.tensor(index), width=width, layout=layout)
    naive = torch.stack([coordinate(i, width=width, layout=layout) for i in index])
    torch.testing.assert_close(ours.double(), naive, atol=1e-4, rtol=0)  # sin of 500 in float32


def test_layouts_and_counts_differ():
    paper, official = (sinusoid(torch.arange(4), width=8, layout=layout) for layout in LAYOUTS)
    assert (paper[0] - official[0]).abs().max() > 0.1
    assert official[0].tolist() == [0.0] * 4 + [1.0] * 4  # sin 0, cos 0: counted from 0
    assert paper[0, 0].item() == pytest.approx(math.sin(1.0))  # counted from 1


@pytest.mark.claim("US 5", "US 18", "equation 6", "equation 7", "tutorial coordinates")
def test_first_equation_of_the_paper_position_plus_step():
    module = coordinates(8)
    encoding = module.position(torch.arange(3).unsqueeze(0))
    added = timed(module, torch.zeros(2, 3, 8), encoding=encoding, step=4, num_steps=6)
    for i in range(3):
        for j in range(4):
            scale = 10000 ** (2 * j / 8)
            assert added[1, i, 2 * j].item() == pytest.approx(math.sin((i + 1) / scale) + math.sin(5 / scale), abs=1e-5)
            assert added[1, i, 2 * j + 1].item() == pytest.approx(
                math.cos((i + 1) / scale) + math.cos(5 / scale), abs=1e-5
            )


@given(left=st.integers(0, 3), real=st.integers(0, 5), right=st.integers(0, 3), offset=st.integers(0, 9))
def test_counting_and_mirroring_are_the_naive_loops(left, real, right, offset):
    length = left + real + right
    if length == 0:
        return
    padding = torch.tensor([[True] * left + [False] * real + [True] * right])
    counted = count_positions(padding)
    assert counted[0, left : left + real].tolist() == list(range(real))
    positions = offset + torch.arange(length).unsqueeze(0)
    mirrored = reverse_positions(positions, padding=padding)
    for i in range(real):
        assert mirrored[0, left + i] == positions[0, left + real - 1 - i]
    assert mirrored.min() >= offset
    assert mirrored.max() < offset + length
    whole = reverse_positions(positions, padding=None)
    assert whole.tolist() == [positions[0].tolist()[::-1]]


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_a_source_is_counted_from_its_last_real_token(position):
    module = coordinates(8, from_end=True, position=position, max_positions=9)
    plain = coordinates(8, position=position, max_positions=9)
    if position == "learned":
        torch.nn.init.normal_(plain.position.weight)
        module.position.counted.weight = plain.position.weight
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    where = 2 + torch.arange(5).unsqueeze(0)
    found = module.position(where, padding=padding).signal
    table = plain.position(torch.arange(9).unsqueeze(0)).signal[0]
    for row, count in ((0, 5), (1, 3)):
        for i in range(count):
            assert torch.equal(found[row, i], table[2 + count - 1 - i])
    assert torch.equal(module.position(where[:, :3]).signal[0], found[1, :3])


def test_a_learned_position_table_that_is_too_short_says_how_long_it_is():
    module = coordinates(8, position="learned", max_positions=4)
    torch.nn.init.normal_(module.position.weight)
    assert torch.equal(module.position(torch.arange(4).unsqueeze(0)).signal[0], module.position.weight)
    with pytest.raises(
        UserError,
        match=r"position 5 .* 4 positions: .*\.max_positions, .* coordinates\.position=",
    ):
        module.position(torch.arange(5).unsqueeze(0))


def test_a_learned_step_table_that_is_too_short_says_how_long_it_is():
    module = coordinates(8, step="learned", max_steps=3)
    torch.nn.init.normal_(module.step.weight)
    like = torch.zeros(1)
    torch.testing.assert_close(module.signals(3, like=like), module.step.weight)
    with pytest.raises(UserError, match=r"step 4 lies beyond the learned table of 3 steps: .* coordinates\.step="):
        module.signals(4, like=like)


def test_no_coordinates_change_nothing():
    module = coordinates(8, position="none", step="none")
    states = torch.randn(2, 3, 8)
    encoding = module.position(torch.arange(3).unsqueeze(0))
    assert torch.equal(timed(module, states, encoding=encoding, step=1, num_steps=2), states)


def test_positions_at_the_input_are_added_once():
    module = coordinates(8, injection="input")
    states, encoding = torch.randn(2, 3, 8), module.position(torch.arange(3).unsqueeze(0))
    entered = module.start(states, encoding)
    torch.testing.assert_close(entered, states + sinusoid(torch.arange(3), width=8))
    later = timed(module, entered, encoding=encoding, step=1, num_steps=2)
    torch.testing.assert_close(later, entered + sinusoid(torch.tensor(1), width=8))
    always = coordinates(8)
    assert always.start(states, always.position(torch.arange(3).unsqueeze(0))) is states


def test_rotary_scores_depend_on_distance_alone():
    module = coordinates(16, num_heads=2, position="rotary")
    query, key = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8)

    def score(i, j):
        turned = (rotate(x, rotary=module.position(torch.tensor([[at]])).rotary) for x, at in ((query, i), (key, j)))
        a, b = turned
        return (a * b).sum(-1)

    torch.testing.assert_close(score(3, 7), score(40, 44), atol=1e-4, rtol=0)
    assert (score(3, 7) - score(3, 8)).abs().max() > 1e-3


def test_rotary_turns_and_never_stretches():
    module = coordinates(16, num_heads=2, position="rotary")
    encoding = module.position(torch.arange(5).unsqueeze(0))
    assert encoding.signal is None
    heads = torch.randn(3, 2, 5, 8)
    turned = rotate(heads, rotary=encoding.rotary)
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1))
    torch.testing.assert_close(turned[:, :, 0], heads[:, :, 0])  # position 0 is not turned


def test_a_cell_of_a_board_has_the_signals_of_its_row_its_column_and_its_box():
    module = coordinates(8, position="grid", step="none", box_rows=2, box_columns=3)
    torch.nn.init.normal_(module.position.weight)
    rows, columns, boxes = module.position.weight
    found = module(torch.zeros(1, 36, 8), module.position(torch.arange(36)[None]), step=0, signals=None)
    box_of = ["000111", "000111", "222333", "222333", "444555", "444555"]
    for row in range(6):
        for column in range(6):
            expected = rows[row] + columns[column] + boxes[int(box_of[row][column])]
            torch.testing.assert_close(found[0, 6 * row + column], expected)
    with pytest.raises(UserError, match="position 37 lies beyond the board of 6 × 6 cells"):
        module.position(torch.arange(37)[None])
    with pytest.raises(UserError, match="box_rows=None"):
        coordinates(8, position="grid")
