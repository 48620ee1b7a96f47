"""Labelled brackets: counts against an oracle over spans, punctuation, chains of one word, and what is no tree."""

from collections import Counter
from functools import reduce
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from universal_transformer.data.trees import Tree, joined
from universal_transformer.evaluation.metrics import METRICS
from universal_transformer.evaluation.metrics.brackets import bracket_f1, bracket_sums
from universal_transformer.evaluation.scores import ScoreSums
from universal_transformer.tasks.algorithmic import AlgorithmicData
from universal_transformer.tasks.grammar import sentences

REFERENCE, SENTENCE = "(S (NP XX XX) (VP XX (NP XX)) XX)", ["the", "dog", "saw", "it", "."]


def spans(tree, first=0):
    """Return all (label, first word, word after the last) of a tree, and the number of its words."""
    found, place = [], first
    for part in tree.parts:
        if isinstance(part, str):
            place += 1
        else:
            inside, place = spans(part, place)
            found += inside
    return [*found, (tree.label, first, place)], place


def trees(words):
    """Trees of so many words, with chains of brackets around the same words."""
    split = st.integers(1, max(1, words - 1))
    parts = st.just(("w",) * words)
    if words > 1:
        parts |= split.flatmap(lambda n: st.tuples(trees(n), trees(words - n)))
    chain = st.lists(st.sampled_from("AB"), min_size=1, max_size=4)
    return st.tuples(chain, parts).map(lambda one: reduce(lambda inside, label: (Tree(label, inside),), *one)[0])


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(trees(n), trees(n))))
def test_counts_are_those_of_an_oracle(pair):
    texts = [joined([*tree.tokens()]) for tree in pair]
    (given_spans, words), (right, _) = map(spans, pair)
    found = bracket_sums(*texts, words=["w"] * words)
    matched = (Counter(given_spans) & Counter(right)).total()
    assert [found[name] for name in ("matched", "brackets", "gold")] == [matched, len(given_spans), len(right)]
    assert found["right"] == (pair[0] == pair[1])
    assert found["valid"] == 1


@pytest.mark.parametrize(
    ("answer", "matched", "brackets"),
    [
        (REFERENCE, 4, 4),
        ("(S (NP XX XX) (VP XX (NP XX) XX))", 4, 4),
        ("(S (NP XX XX) (VP XX (NP XX)) (X XX))", 4, 4),
        ("(S (NP XX XX) (VP XX (PP XX)) XX)", 3, 4),
        ("(S (S (NP (NP XX XX)) (VP XX (NP XX)) XX))", 4, 6),
        ("(S (NP XX XX) (VP XX (ADJP (NP XX))) XX)", 4, 5),
        ("(S XX XX XX XX XX)", 1, 1),
    ],
    ids=["right", "mark elsewhere", "bracket of a mark", "label", "twice the same", "chain", "flat"],
)
def test_brackets_that_are_counted(answer, matched, brackets):
    found = bracket_sums(answer, REFERENCE, words=SENTENCE)
    assert (found["matched"], found["brackets"], found["gold"], found["valid"]) == (matched, brackets, 4, 1)
    assert found["right"] == (answer == REFERENCE)
    assert bracket_f1(found) == pytest.approx(2 * matched / (brackets + 4))


@pytest.mark.parametrize("answer", ["", REFERENCE[:-1], REFERENCE + ")", "(S XX XX XX XX)", "XX"])
def test_an_invalid_answer_counts_as_a_tree_of_wrong_brackets(answer):
    found = bracket_sums(answer, REFERENCE, words=SENTENCE)
    assert found == {"matched": 0, "brackets": 4, "gold": 4, "valid": 0, "right": 0}
    assert bracket_f1(found) == 0


@pytest.mark.parametrize(
    ("answer", "matched", "brackets"),
    [
        ("(TOP (S XX XX) XX)", 1, 1),
        ("(TOP XX XX XX)", 0, 0),
        ("(S (TOP XX XX) XX)", 0, 2),
        ("(TOP (TOP (S XX XX)) XX)", 1, 2),
    ],
)
def test_an_outermost_top_does_not_count(answer, matched, brackets):
    found = bracket_sums(answer, "(TOP (S XX XX) XX)", words=["a", "b", "c"])
    assert (found["matched"], found["brackets"], found["gold"]) == (matched, brackets, 1)


def test_a_sentence_of_marks_only_keeps_them():
    assert bracket_sums("(S XX XX)", "(S XX XX)", words=["?", "!"])["matched"] == 1


def test_words_that_look_like_brackets_or_tags_change_nothing():
    words = ["-LRB-", "a_b", "(", ")", "."]
    assert bracket_sums(REFERENCE, REFERENCE, words=words)["matched"] == 4


def test_a_right_tree_of_the_grammar_has_f1_of_1():
    for words, tokens in islice(sentences("test", lengths=(3, 20), seed=0), 30):
        text = joined(tokens)
        assert bracket_f1(bracket_sums(text, text, words=words)) == 1


def test_scores_of_several_answers_are_those_of_all_their_brackets():
    found = ScoreSums(count=0)
    for answer in (REFERENCE, "(S XX"):
        found.add(ScoreSums(sums=bracket_sums(answer, REFERENCE, words=SENTENCE)))
    metric = METRICS["brackets"](AlgorithmicData(train_examples=1, validation_examples=1, test_examples=1).load())
    assert metric.scores(found) == {"bracket_f1": 0.5, "valid_trees": 0.5, "sequence_accuracy": 0.5}
    assert "EVALB" in metric.signatures()["bracket_f1"]
    assert metric.example_score(found) == 0.5
