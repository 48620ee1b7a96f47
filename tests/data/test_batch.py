import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.batch import Batch, collate
from universal_transformer.data.example import NO_CLASS, Example, size, sizes, spread

IDS = st.lists(st.integers(1, 99), min_size=1, max_size=9).map(tuple)
FACTS = st.lists(IDS, min_size=1, max_size=6).map(tuple)


@given(rows=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=6))
def test_rows_of_tokens_come_back_without_their_padding(rows):
    examples = [Example(source=source, target=target) for source, target in rows]
    batch = collate(examples, indices=range(len(rows)))
    assert batch.source is not None
    assert batch.source.dtype == batch.target.dtype == batch.indices.dtype == torch.int64
    for row, example in enumerate(examples):
        assert tuple(batch.source[row].tolist()) == _padded(example.source, batch.source.shape[1])
        assert tuple(batch.target[row].tolist()) == _padded(example.target, batch.target.shape[1])
    assert max(size(example) for example in examples) == max(batch.source.shape[1], batch.target.shape[1])
    assert batch.num_tokens == sum(len(target) for _, target in rows)


@given(stories=st.lists(FACTS, min_size=1, max_size=5))
def test_facts_come_back_without_their_padding_and_a_padded_fact_is_all_padding(stories):
    examples = [Example(source=story, target=7) for story in stories]
    batch = collate(examples, indices=range(len(stories)))
    assert batch.source is not None
    assert batch.target.tolist() == [7] * len(stories)
    assert batch.num_tokens == len(stories)
    num_facts, num_words = batch.source.shape[1:]
    for row, story in enumerate(stories):
        expected = [list(_padded(fact, num_words)) for fact in story]
        assert batch.source[row].tolist() == expected + [[0] * num_words] * (num_facts - len(story))


def test_a_language_model_has_no_source():
    batch = collate([Example(source=(), target=(4, 5)), Example(source=(), target=(6,))], indices=[3, 1])
    assert batch.source is None
    assert batch.target.tolist() == [[4, 5], [6, 0]]
    assert batch.indices.tolist() == [3, 1]
    assert batch.num_tokens == 3


def test_examples_without_answers_make_a_batch():
    assert collate([Example(source=(4,), target=())], indices=[0]).target.shape == (1, 0)
    assert collate([Example(source=(4,), target=NO_CLASS)], indices=[0]).target.tolist() == [NO_CLASS]


def test_an_unknown_class_adds_nothing_to_the_loss():
    logits = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
    both = torch.nn.functional.cross_entropy(logits, torch.tensor([1, NO_CLASS]))
    assert both == torch.nn.functional.cross_entropy(logits[:1], torch.tensor([1]))


def test_moving_a_batch_keeps_it():
    batch = collate([Example(source=(4, 5), target=(6,))], indices=[0])
    moved = batch.to("cpu")
    assert isinstance(moved, Batch)
    assert moved.source is not None
    assert moved.source.tolist() == [[4, 5]]
    assert collate([Example(source=(), target=(6,))], indices=[0]).to("cpu").source is None


@pytest.mark.parametrize(
    ("examples", "indices"),
    [([], []), ([Example((1,), 2)], [0, 1]), ([Example((1,), 2), Example((1,), 2, padding_id=5)], [0, 1])],
)
def test_no_examples_wrong_indices_and_two_ids_of_padding_are_refused(examples, indices):
    with pytest.raises(AssertionError):
        collate(examples, indices=indices)


def test_size_is_the_longer_of_source_and_target_and_a_class_takes_one():
    examples = [Example((1, 2, 3), (4,)), Example((), (4, 5)), Example((), 5), Example(((1, 2), (3,)), 5)]
    assert sizes(examples) == [3, 2, 1, 2]


def _padded(ids, length):
    return tuple(ids) + (0,) * (length - len(ids))


@given(total=st.integers(1, 200), count=st.integers(1, 200))
def test_a_sample_has_one_example_of_each_equal_part(total, count):
    examples = [Example(source=(), target=(place,)) for place in range(total)]
    places = [example.target[0] for example in spread(examples, count=count)]
    parts = min(count, total)
    assert [-(-(place + 1) * parts // total) - 1 for place in places] == list(range(parts))
    assert spread(examples, count=count) == spread(examples, count=count)


def test_a_sample_is_not_every_nth_example():
    """Every fifth question of five about a story would always be the first."""
    places = [example.target % 5 for example in spread([Example((), place) for place in range(500)], count=100)]
    assert set(places) == {0, 1, 2, 3, 4}
