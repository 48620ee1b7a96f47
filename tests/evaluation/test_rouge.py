"""ROUGE of written answers: counts by hand, words of other scripts, and the task that asks for it."""

import pytest

from universal_transformer.evaluation.metrics import metric_of
from universal_transformer.evaluation.metrics.rouge import Words, first_sentence, rouge_sums
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.tasks.pairs import PairsData


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("the cat sat", "the cat sat", (1, 1, 1)),
        ("the cat", "the cat sat down", (2 * 1 * 0.5 / 1.5, 2 * 1 * (1 / 3) / (4 / 3), 2 * 1 * 0.5 / 1.5)),
        ("sat cat the", "the cat sat", (1, 0, 1 / 3)),
        ("The CAT, sat!", "the cat sat", (1, 1, 1)),
        ("", "the cat", (0, 0, 0)),
        ("東京は雨", "東京は晴れ", (2 * 3 / 9, 2 * 2 / 7, 2 * 3 / 9)),
        ("Привет мир", "привет, мир", (1, 1, 1)),
    ],
)
def test_scores_are_those_counted_by_hand(text, reference, expected):
    assert tuple(rouge_sums(text, reference).values()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop-it, 3.5%", ["don", "t", "stop", "it", "3", "5"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("東京 Tower・ラーメン", ["東", "京", "tower", "ラ", "ー", "メ", "ン"]),
        ("ｆｕｌｌ ﬁ", ["full", "fi"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("", []),
    ],
)
def test_words_are_those_of_any_script(text, words):
    assert Words().tokenize(text) == words


@pytest.mark.parametrize(
    ("text", "first"),
    [("It rained. It was 3.5 m.", "It rained."), ("Why? No.", "Why?"), ("no end", "no end"), ("雨。晴れ。", "雨。")],
)
def test_the_first_sentence_is_the_baseline(text, first):
    assert first_sentence(text) == first


def test_a_task_of_pairs_is_scored_by_rouge(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"it rained {n}. more text.\tit rained\n" for n in range(20)))
    task = PairsData(train=str(tmp_path / "a.tsv"), tokenizer="character", metric="rouge").load()
    assert (task.metric, len(task.test["validation"])) == ("rouge", 1)
    metric, counts = metric_of(task), (1,) * len(task.codec.target.tokenizer)
    baseline = TrivialBaseline(counts=counts, copies=True)
    found = metric.trivial(baseline, task.validation[0])
    assert found.sums["rouge_l"] == pytest.approx(2 * (2 / 3) / (5 / 3))
    assert metric.example_score(found) == found.sums["rouge_l"]
    assert metric.scores(found)["rouge_l"] == pytest.approx(80)
    assert "rouge-score 0.1" in metric.signatures()["rouge_l"]
    assert metric.describe(baseline) == "the first sentence of the source"
