import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.tokenizer import until_end
from universal_transformer.evaluation.metrics.sequence import character_accuracy, sequence_accuracy
from universal_transformer.evaluation.metrics.words import word_errors

IDS = st.lists(st.integers(3, 9), max_size=8)


@pytest.mark.parametrize(
    ("predicted", "target", "characters", "sequence"),
    [
        ([5, 6, 7], [5, 6, 7], 1.0, 1.0),
        ([5, 6, 8], [5, 6, 7], 2 / 3, 0.0),
        ([5], [5, 6, 7, 8], 1 / 4, 0.0),  # missing places are wrong
        ([], [5, 6], 0.0, 0.0),
        ([5, 6, 9, 9], [5, 6], 1.0, 0.0),  # what is too much breaks the sequence, no character
        ([6, 5, 6], [5, 6, 5], 0.0, 0.0),  # shifted by one: all places are wrong
        ([], [], 1.0, 1.0),
        ([5], [], 0.0, 0.0),
    ],
)
def test_hand_made_scores(predicted, target, characters, sequence):
    assert character_accuracy(predicted, target) == pytest.approx(characters)
    assert sequence_accuracy(predicted, target) == sequence


@given(predicted=IDS, target=IDS)
def test_a_right_sequence_has_right_characters_and_the_score_is_a_share(predicted, target):
    characters = character_accuracy(predicted, target)
    assert 0.0 <= characters <= 1.0
    assert sequence_accuracy(predicted, target) == float(predicted == target)
    assert (characters == 1.0 and len(predicted) == len(target)) == (predicted == target)


@given(ids=IDS, rest=IDS, end=st.sampled_from([2, 11]))
def test_ids_are_cut_at_the_first_end(ids, rest, end):
    assert list(until_end([*ids, end, *rest, end], end_id=end)) == ids == list(until_end(ids, end_id=end))


@pytest.mark.parametrize(
    ("given", "reference", "errors"),
    [
        ("", "", 0),
        ("one two", "one two", 0),
        ("one", "two", 1),
        ("", "one two three", 3),
        ("one two three", "", 3),
        ("two three", "one two three", 1),
        ("one two two three", "one two three", 1),
        ("three one two", "one two three", 2),
        ("one  two", " one two ", 0),
    ],
)
def test_hand_made_word_errors(given, reference, errors):
    found = word_errors(given, reference)
    assert found == {"errors": errors, "words": len(reference.split()), "sequences": float(errors == 0)}


def fewest_changes(given, wanted):
    """Levenshtein's distance by its recursive definition."""
    if not given or not wanted:
        return len(given) + len(wanted)
    exchanged = fewest_changes(given[1:], wanted[1:]) + (given[0] != wanted[0])
    return min(exchanged, fewest_changes(given[1:], wanted) + 1, fewest_changes(given, wanted[1:]) + 1)


WORDS = st.lists(st.sampled_from("abc"), max_size=5)


@given(WORDS, WORDS)
def test_word_errors_are_the_fewest_changes(given, wanted):
    assert word_errors(" ".join(given), " ".join(wanted))["errors"] == fewest_changes(given, wanted)
