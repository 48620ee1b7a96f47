import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data import sampler as sampler_module
from universal_transformer.data.sampler import batches_by_size, windows_of_batches
from universal_transformer.errors import UserError

SIZES = st.lists(st.integers(min_value=0, max_value=60), max_size=80)


@given(
    sizes=SIZES,
    budget=st.integers(1, 200),
    seed=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_every_example_is_in_exactly_one_batch_within_the_budget(sizes, budget, seed):
    batches = batches_by_size(sizes, batch_tokens=budget, seed=seed)
    assert sorted(index for batch in batches for index in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[index] for index in batch) <= budget
    assert batches == batches_by_size(tuple(sizes), batch_tokens=budget, seed=seed)


def test_epochs_and_seeds_differ_in_order_and_in_batches():
    sizes = [5 + index % 7 for index in range(200)]
    first, second, other = (batches_by_size(sizes, batch_tokens=60, seed=seed) for seed in ((1, 0), (1, 1), (2, 0)))
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    assert other != first


def test_batches_without_a_seed_go_by_size_then_index():
    assert batches_by_size([3, 1, 2, 1], batch_tokens=4) == [[1, 3], [2], [0]]


def test_little_of_a_batch_is_padding():
    sizes = [1 + (index * 37) % 100 for index in range(2000)]
    batches = batches_by_size(sizes, batch_tokens=1000, seed=(0, 0))
    padded = sum(len(batch) * max(sizes[index] for index in batch) for batch in batches)
    assert padded <= 1.15 * sum(sizes)
    assert len(batches) <= 1.25 * sum(sizes) / 1000


def test_a_budget_that_cannot_work_is_refused():
    with pytest.raises(UserError, match="batch_tokens: expected a whole number, at least 1, found 0"):
        batches_by_size([1], batch_tokens=0)


@contextmanager
def small_windows():
    """Three blocks of four examples are a window."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler_module, "BLOCK", 4)
        patch.setattr(sampler_module, "WINDOW", 3)
        yield


def windows_of(sizes, *, epoch=0, budget=100, seed=0):
    found = np.array(sizes).__getitem__
    return list(windows_of_batches(found, count=len(sizes), batch_tokens=budget, seed=seed, epoch=epoch))


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=80), budget=st.integers(1, 200), epoch=st.integers(0, 9))
@small_windows()
def test_windows_have_every_example_once_within_the_budget(sizes, budget, epoch):
    windows = windows_of(sizes, budget=budget, seed=2, epoch=epoch)
    assert sorted(index for window in windows for batch in window for index in batch) == list(range(len(sizes)))
    for window in windows:
        assert {type(index) for batch in window for index in batch} == {int}
        assert sum(map(len, window)) <= 12
        assert len({index // 4 for batch in window for index in batch}) <= 3
        assert all(len(batch) == 1 or len(batch) * max(sizes[index] for index in batch) <= budget for batch in window)
    assert windows_of(sizes, budget=budget, seed=2, epoch=epoch) == windows


@small_windows()
def test_windows_differ_by_epoch_and_seed_and_mix_what_is_far_apart():
    sizes = [5 + index % 7 for index in range(200)]
    first, second = (windows_of(sizes, epoch=epoch) for epoch in (0, 1))
    assert first != second != windows_of(sizes, seed=1) != first
    assert max(max(map(max, window)) - min(map(min, window)) for window in first) > 100


@small_windows()
def test_a_window_reads_the_sizes_of_its_examples_only():
    asked = []

    def sizes(indices):
        asked.append(len(indices))
        return np.ones(len(indices), dtype=np.int64)

    next(windows_of_batches(sizes, count=1000, batch_tokens=4, seed=0, epoch=0))
    assert asked == [12]


def test_the_memory_of_windows_is_that_of_one_window():
    tracemalloc.start()
    windows = windows_of_batches(np.ones_like, count=10**8, batch_tokens=64, seed=0, epoch=0)
    assert len({index // 10**7 for batch in next(windows) for index in batch}) == 10
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_little_of_a_batch_of_windows_is_padding():
    sizes = np.array([1 + (index * 37) % 100 for index in range(70_000)])
    batches = [batch for window in windows_of(sizes, budget=4000) for batch in window]
    assert sum(len(batch) * int(sizes[batch].max()) for batch in batches) <= 1.1 * sizes.sum()
