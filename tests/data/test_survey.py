from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data import survey as module
from universal_transformer.data.survey import batches, survey

SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=60)


@pytest.fixture(scope="module", autouse=True)
def _small_limits():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SAMPLE", 50)
        patch.setattr(module, "TAIL", 40)
        patch.setattr(module, "TOGETHER", 35)
        yield


@given(SIZES)
def test_a_survey_is_what_all_items_in_memory_give(sizes):
    items = list(enumerate(sizes))
    found = survey(items, size=lambda item: item[1])
    assert (found.count, found.characters) == (len(items), sum(sizes))
    stride = 1
    while sum(sizes[::stride]) > 50 and len(sizes[::stride]) > 1:
        stride *= 2
    assert found.sample == items[::stride]
    assert found.tail == items[len(items) - len(found.tail) :]
    assert sum(size for _, size in found.tail) <= 40
    assert len(found.tail) == len(items) or sum(sizes[len(items) - len(found.tail) - 1 :]) > 40


@given(SIZES)
def test_batches_are_the_items_in_their_order_within_the_limit(sizes):
    found = list(batches(sizes, size=int))
    assert [size for batch in found for size in batch] == sizes
    assert all(len(batch) == 1 or sum(batch) <= 35 for batch in found)
    assert all(sum(batch) + after[0] > 35 for batch, after in pairwise(found))


def test_a_sample_goes_to_the_end():
    found = survey(range(1000), size=lambda _: 1)
    steps = {after - item for item, after in zip(found.sample, found.sample[1:], strict=False)}
    assert steps == {32}
    assert found.sample[-1] >= 1000 - 32
