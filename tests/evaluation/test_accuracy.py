import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.fixed_length import FixedLength
from small_task_models import letters
from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import until_end
from universal_transformer.evaluation.metrics.edits import CharacterErrors, PhonemeErrors, WordErrors, levenshtein
from universal_transformer.evaluation.metrics.sequence import SequenceAccuracy
from universal_transformer.evaluation.scores import total
from universal_transformer.tasks.task import Task

IDS = st.lists(st.integers(3, 9), max_size=8)


def task_of_letters():
    return Task("letters", letters(), [], [], {}, "sequence")


def scored(answers, targets, metric=SequenceAccuracy):
    """The scores of answers, each a list of ids, to targets."""
    found = metric(task_of_letters())
    examples = [Example(source=(5,), target=(*target, 2)) for target in targets]
    return found.scores(total(found.sums(answer, one) for answer, one in zip(answers, examples, strict=True)))


@pytest.mark.parametrize(
    ("predicted", "target", "characters", "of_target"),
    [
        ([5, 6, 7], [5, 6, 7], 1.0, 1.0),
        ([5, 6, 8], [5, 6, 7], 2 / 3, 2 / 3),
        ([5], [5, 6, 7, 8], 1 / 4, 1 / 4),  # missing places are wrong
        ([], [5, 6], 0.0, 0.0),
        ([5, 6, 5, 6], [5, 6], 1 / 2, 1.0),  # what is too much is wrong, but not as a table of the paper has it
        ([6, 5, 6], [5, 6, 5], 0.0, 0.0),  # shifted by one: all places are wrong
        ([], [], 1.0, 1.0),
        ([5], [], 0.0, 0.0),
    ],
)
def test_hand_made_scores(predicted, target, characters, of_target):
    sequence = float(predicted == target)
    assert scored([predicted], [target]) == pytest.approx(
        {"character_accuracy": characters, "sequence_accuracy": sequence}
    )
    assert scored([predicted], [target], FixedLength)["character_accuracy"] == pytest.approx(of_target)


def test_places_are_summed_over_the_examples():
    """One of one place and two of nine: 3 of 10, where the mean of both examples would be more than a half."""
    found = scored([[5], [5, 6]], [[5], [5, 6, 7, 8, 9, 5, 6, 7, 8]])
    assert found["character_accuracy"] == pytest.approx(3 / 10)


@given(predicted=IDS, target=IDS)
def test_characters_are_all_right_where_the_sequence_is(predicted, target):
    found = scored([predicted], [target])
    assert 0.0 <= found["character_accuracy"] <= 1.0
    assert (found["character_accuracy"] == 1.0) == (predicted == target) == (found["sequence_accuracy"] == 1.0)


@given(ids=IDS, rest=IDS, end=st.sampled_from([2, 11]))
def test_ids_are_cut_at_the_first_end(ids, rest, end):
    assert list(until_end([*ids, end, *rest, end], end_id=end)) == ids == list(until_end(ids, end_id=end))


@pytest.mark.parametrize(
    ("given", "reference", "words", "characters"),
    [
        ("", "", 0, 0),
        ("one two", "one two", 0, 0),
        ("one", "two", 1, 3),
        ("", "one two", 2, 7),
        ("one two", "", 2, 7),
        ("two three", "one two three", 1, 4),
        ("one two two", "one two", 1, 4),
        ("b a", "a b", 2, 2),
        ("one  two", "one two", 0, 1),
    ],
)
def test_hand_made_errors_of_words_and_characters(given, reference, words, characters):
    rates = (WordErrors, words, len(reference.split())), (CharacterErrors, characters, len(reference))
    for metric, errors, units in rates:
        sums = metric(task_of_letters()).of_text(given, Example(source=(5,), target=(2,), written=("", reference))).sums
        assert sums == {"errors": errors, "units": units, "sequences": float(errors == 0)}


def test_an_error_rate_is_that_of_all_words_together():
    metric, names = PhonemeErrors(task_of_letters()), ("h e j", "a")
    examples = [Example(source=(5,), target=(2,), written=("", reference)) for reference in ("h e j d o", "b")]
    sums = total(metric.of_text(text, one) for text, one in zip(names, examples, strict=True))
    assert metric.scores(sums) == {"phoneme_error": pytest.approx(100 * 3 / 6), "sequence_accuracy": 0.0}


def fewest_changes(given, wanted):
    """Levenshtein's distance by its recursive definition."""
    if not given or not wanted:
        return len(given) + len(wanted)
    exchanged = fewest_changes(given[1:], wanted[1:]) + (given[0] != wanted[0])
    return min(exchanged, fewest_changes(given[1:], wanted) + 1, fewest_changes(given, wanted[1:]) + 1)


WORDS = st.lists(st.sampled_from("abc"), max_size=5)


@given(WORDS, WORDS)
def test_a_distance_is_the_fewest_changes(given, wanted):
    assert levenshtein().distance(given, wanted) == fewest_changes(given, wanted)
