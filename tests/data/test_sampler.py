import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data import sampler as sampler_module
from universal_transformer.data.sampler import BucketSampler, WindowSampler
from universal_transformer.errors import UserError

SIZES = st.lists(st.integers(min_value=0, max_value=60), max_size=80)


@given(
    sizes=SIZES,
    budget=st.integers(1, 200),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 9),
    shuffle=st.booleans(),
)
def test_every_example_is_in_exactly_one_batch_within_the_budget(sizes, budget, seed, epoch, shuffle):
    batches = BucketSampler(sizes=sizes, batch_tokens=budget, seed=seed, shuffle=shuffle).epoch(epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[index] for index in batch) <= budget


@given(sizes=SIZES, seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_an_epoch_is_a_function_of_seed_and_number_alone(sizes, seed, epoch):
    sampler = BucketSampler(sizes=sizes, batch_tokens=100, seed=seed, shuffle=True)
    sampler.epoch(epoch + 1)  # what was asked before leaves no trace
    again = BucketSampler(sizes=tuple(sizes), batch_tokens=100, seed=seed, shuffle=True)
    assert sampler.epoch(epoch) == again.epoch(epoch)


def test_epochs_and_seeds_differ_in_order_and_in_batches():
    sizes = [5 + index % 7 for index in range(200)]
    sampler = BucketSampler(sizes=sizes, batch_tokens=60, seed=1, shuffle=True)
    first, second = sampler.epoch(0), sampler.epoch(1)
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    assert BucketSampler(sizes=sizes, batch_tokens=60, seed=2, shuffle=True).epoch(0) != first


def test_unshuffled_batches_go_by_size_then_index_and_every_epoch_is_the_same():
    sampler = BucketSampler(sizes=[3, 1, 2, 1], batch_tokens=4, seed=0, shuffle=False)
    assert sampler.epoch(0) == sampler.epoch(5) == [[1, 3], [2], [0]]


def test_little_of_a_batch_is_padding():
    sizes = [1 + (index * 37) % 100 for index in range(2000)]
    batches = BucketSampler(sizes=sizes, batch_tokens=1000, seed=0, shuffle=True).epoch(0)
    padded = sum(len(batch) * max(sizes[index] for index in batch) for batch in batches)
    assert padded <= 1.15 * sum(sizes)
    assert len(batches) <= 1.25 * sum(sizes) / 1000


def test_a_budget_or_seed_that_cannot_work_is_refused():
    with pytest.raises(UserError, match="batch_tokens: expected a whole number, at least 1, found 0"):
        BucketSampler(sizes=[1], batch_tokens=0, seed=0, shuffle=True)
    with pytest.raises(UserError, match="seed: expected a whole number, at least 0, found -1"):
        BucketSampler(sizes=[1], batch_tokens=1, seed=-1, shuffle=True)


@contextmanager
def small_windows():
    """Three blocks of four examples are a window."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler_module, "BLOCK", 4)
        patch.setattr(sampler_module, "WINDOW", 3)
        yield


def window_sampler(sizes, *, budget=100, seed=0):
    return WindowSampler(np.array(sizes).__getitem__, count=len(sizes), batch_tokens=budget, seed=seed)


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=80), budget=st.integers(1, 200), epoch=st.integers(0, 9))
@small_windows()
def test_windows_have_every_example_once_within_the_budget(sizes, budget, epoch):
    sampler = window_sampler(sizes, budget=budget, seed=2)
    windows = list(sampler.windows(epoch))
    assert sorted(index for window in windows for batch in window for index in batch) == list(range(len(sizes)))
    for window in windows:
        assert {type(index) for batch in window for index in batch} == {int}
        assert sum(map(len, window)) <= 12
        assert len({index // 4 for batch in window for index in batch}) <= 3
        assert all(len(batch) == 1 or len(batch) * max(sizes[index] for index in batch) <= budget for batch in window)
    assert list(window_sampler(sizes, budget=budget, seed=2).windows(epoch)) == windows


@small_windows()
def test_windows_differ_by_epoch_and_seed_and_mix_what_is_far_apart():
    sizes = [5 + index % 7 for index in range(200)]
    first, second = (list(window_sampler(sizes).windows(epoch)) for epoch in (0, 1))
    assert first != second != list(window_sampler(sizes, seed=1).windows(0)) != first
    assert max(max(map(max, window)) - min(map(min, window)) for window in first) > 100


@small_windows()
def test_a_window_reads_the_sizes_of_its_examples_only():
    asked = []

    def sizes(indices):
        asked.append(len(indices))
        return np.ones(len(indices), dtype=np.int64)

    next(WindowSampler(sizes, count=1000, batch_tokens=4, seed=0).windows(0))
    assert asked == [12]


def test_the_memory_of_windows_is_that_of_one_window():
    tracemalloc.start()
    windows = WindowSampler(np.ones_like, count=10**8, batch_tokens=64, seed=0).windows(0)
    assert len({index // 10**7 for batch in next(windows) for index in batch}) == 10
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


def test_little_of_a_batch_of_windows_is_padding():
    sizes = np.array([1 + (index * 37) % 100 for index in range(70_000)])
    sampler = WindowSampler(sizes.__getitem__, count=len(sizes), batch_tokens=4000, seed=0)
    batches = [batch for window in sampler.windows(0) for batch in window]
    assert sum(len(batch) * int(sizes[batch].max()) for batch in batches) <= 1.1 * sizes.sum()
