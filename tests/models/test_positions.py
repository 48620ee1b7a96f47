"""Positions for training, and positions that start again after separators."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from small_models import small
from universal_transformer.errors import UserError
from universal_transformer.models.components import CoordinatesConfig
from universal_transformer.models.positions.numbering import (
    count_separators,
    draw_positions,
    restart_positions,
)
from universal_transformer.models.positions.rotary import RotaryPositions
from universal_transformer.nn.step_config import Sizes


@given(
    length=st.integers(1, 12),
    spare=st.integers(0, 5),
    offsets=st.sampled_from(("random", "scattered", "spread")),
)
def test_drawn_positions_are_distinct_sorted_and_in_range(length, spare, offsets):
    drawn = draw_positions(CoordinatesConfig(offsets=offsets, max_positions=length + spare), 7, length)
    assert drawn.shape == (7, length)
    assert drawn.min() >= 0
    assert drawn.max() < length + spare
    steps = drawn.diff(dim=1)
    assert (steps >= 1).all()
    if offsets == "random":
        assert (steps == 1).all()


@pytest.mark.parametrize("offsets", ["random", "scattered"])
def test_every_position_is_drawn_equally_well(offsets):
    drawn = draw_positions(CoordinatesConfig(offsets=offsets, max_positions=6), 4000, 2)
    first = drawn[:, 0].bincount(minlength=6) / 4000
    # random: 5 offsets alike; scattered: the smaller of 2 out of 6 is k in 5 - k out of 15 cases
    wanted = [0.2] * 5 + [0.0] if offsets == "random" else [(5 - k) / 15 for k in range(6)]
    torch.testing.assert_close(first, torch.tensor(wanted), atol=0.03, rtol=0)


def test_spread_positions_meet_neighbours_more_often_than_scattered_ones():
    gaps = {
        offsets: draw_positions(CoordinatesConfig(offsets=offsets, max_positions=64), 2000, 4).diff(dim=1)
        for offsets in ("scattered", "spread")
    }
    near = {offsets: float((gap == 1).double().mean()) for offsets, gap in gaps.items()}
    assert near["scattered"] == pytest.approx(4 / 64, abs=0.02)
    # 4 / w in a window of w, and its mean over the logarithm of w
    assert near["spread"] == pytest.approx((1 - 4 / 64) / math.log(64 / 4), abs=0.05)
    assert gaps["spread"].max() > 32


@pytest.mark.parametrize("offsets", ["random", "scattered", "spread"])
def test_a_sequence_that_is_too_long_for_an_offset_is_refused(offsets):
    with pytest.raises(UserError, match=r"9 positions .* coordinates\.max_positions=8"):
        draw_positions(CoordinatesConfig(offsets=offsets, max_positions=8), 2, 9)


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9))
def test_restarting_after_separators_is_the_naive_loop(marks, left, right, first):
    padding = torch.tensor([[True] * left + [False] * len(marks) + [True] * right])
    separators = torch.tensor([[False] * left + marks + [False] * right])
    drawn = first + 3 * torch.arange(left + len(marks) + right).unsqueeze(0)
    found = restart_positions(drawn, separators=separators, padding=padding)
    parts = count_separators(separators)
    rank = part = 0
    for place, mark in enumerate(marks, start=left):
        assert found[0, place] == drawn[0, left + rank]
        assert parts[0, place] == part
        rank, part = (0, part + 1) if mark else (rank + 1, part)


@pytest.mark.parametrize(
    ("lengths", "mirrored"),
    [
        (None, [[4, 3, 2, 1, 0]]),
        ((5, 3, 1), [[4, 3, 2, 1, 0], [2, 1, 0, 0, 0], [0, 0, 0, 0, 0]]),
    ],
)
def test_half_of_the_heads_count_the_source_from_its_end(lengths, mirrored):
    sizes = Sizes(width=24, filter_width=24, num_heads=4)
    coordinates = RotaryPositions(sizes)
    positions, padding = torch.arange(5).unsqueeze(0), None
    if lengths is not None:
        padding = torch.arange(5) >= torch.tensor(lengths).unsqueeze(1)
    found = coordinates.source_angles(positions, padding=padding, from_end=True)
    expected = coordinates.angles(torch.tensor(mirrored))
    assert found.shape[2] == 4
    for head in range(4):
        for row, length in enumerate(lengths or (5,)):
            wanted = coordinates.angles(positions)[:, 0] if head < 2 else expected[:, row]
            torch.testing.assert_close(found[:, row, head, :length], wanted[:, 0, :length])
    plain = coordinates.source_angles(positions, padding=padding, from_end=False)
    assert torch.equal(plain, coordinates.angles(positions))


def test_positions_start_again_after_each_separator():
    source = torch.tensor([[7, 5, 8, 8, 5, 4, 7, 0]])
    assert small(separator_id=5).source.positions(source)[0, :7].tolist() == [0, 1, 0, 1, 2, 0, 1]
    assert small(separator_id=(5, 4)).source.positions(source)[0, :7].tolist() == [0, 1, 0, 1, 2, 0, 0]
