import dataclasses
import math
from collections import Counter

import pytest

from small_task_models import TINY, model_for
from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import evaluate, not_better
from universal_transformer.evaluation.metrics import METRICS, metric_of
from universal_transformer.evaluation.metrics.bleu import corpus_scores
from universal_transformer.evaluation.trivial import TrivialBaseline, num_target_ids
from universal_transformer.evaluation.word_counts import NaiveBayes
from universal_transformer.tasks.labelled import LabelledData
from universal_transformer.tasks.pairs import PairsData
from universal_transformer.tasks.tagged import TaggedData
from universal_transformer.typed import replaced


@pytest.fixture
def labelled(tmp_path):
    """Three of four texts are "ham", and the words tell nothing."""
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"a b c {n % 7}\t{'spam' if n % 4 == 0 else 'ham'}\n" for n in range(200)))
    return LabelledData(train=str(path), validation=str(path)).load()


def learned(task, model):
    return metric_of(task).learn(task.train, model.config)


def reported(task):
    model = model_for(task)
    return evaluate(model, task, baseline=learned(task, model))


def test_a_classifier_is_compared_with_the_most_frequent_class(labelled):
    report = reported(labelled)
    (total,) = report.totals
    assert total.baseline["error"] == 25.0
    assert report.baseline == "always 'ham', the most frequent class"
    head, row = report.score_table()
    assert dict(zip(head, row, strict=True))["baseline"] == "25.00"
    assert f"baseline: {report.baseline}" in report.lines()


@pytest.mark.parametrize("better", [False, True])
def test_a_model_that_is_not_better_is_warned_about(labelled, better):
    """As good as the baseline is not better."""
    report = reported(labelled)
    total = dataclasses.replace(report.totals[0], metrics={"error": 24.0 if better else 25.0})
    found = list(not_better(dataclasses.replace(report, totals=(total,))))
    warning = "validation: error % 25.00 is not better than the baseline, 25.00 (always 'ham', the most frequent class)"
    assert found == ([] if better else [warning])


def test_translations_are_compared_with_the_better_of_the_source_and_the_most_frequent_target(pairs):
    report = reported(pairs)
    rows = pairs.test["validation"]
    (often, _), *_ = Counter(example.written[1] for example in pairs.train).most_common(1)
    sources, frequent = (
        corpus_scores([(answer, row.written[1]) for answer, row in zip(answers, rows, strict=True)])[0]
        for answers in ([row.written[0] for row in rows], [often] * len(rows))
    )
    assert frequent["chrf"] > sources["chrf"]
    assert report.totals[0].baseline == pytest.approx(frequent | {"exact_match": 0.0})
    assert report.baseline == f"always '{often}', the most frequent target"
    assert "BLEU 0.00 is not better than" in report.warnings[-1]


def test_sequences_are_compared_with_the_most_frequent_target(copying):
    often = Example(source=(5, 6), target=(5, 6, 2))
    task = dataclasses.replace(
        copying, train=[*copying.train, often, often], test={"test": [often, Example(source=(6,), target=(5, 7, 2))]}
    )
    report = reported(task)
    assert report.totals[0].baseline == {"character_accuracy": 0.75, "sequence_accuracy": 0.5}
    assert report.baseline == f"always '{task.codec.render((5, 6))}', the most frequent target"


def test_perplexity_is_compared_with_that_of_token_frequencies(text_task):
    task = text_task("character")
    model = model_for(task)
    counts = [1] * num_target_ids(model.config)
    for example in task.train:
        for token in example.target:
            counts[token] += 1
    test = [token for example in task.test["test"] for token in example.target]
    nats = -sum(math.log(counts[token] / sum(counts)) for token in test) / len(test)
    report = reported(task)
    found = report.totals[0].baseline
    assert found["perplexity"] == pytest.approx(math.exp(nats))
    assert found["bits_per_character"] == pytest.approx(nats / math.log(2))
    assert found["accuracy"] == pytest.approx(test.count(counts.index(max(counts))) / len(test))


@pytest.mark.parametrize(("right", "wrong", "score"), [((4, 5), (4, 6), 1.0), ((4, 6), (4, 5), 0.0), ((4,), (4,), 0.5)])
def test_of_two_texts_the_one_of_more_frequent_tokens_is_preferred(copying, right, wrong, score):
    baseline = TrivialBaseline(counts=(0, 0, 0, 0, 1, 9, 2))
    found = METRICS["ranking"](copying).trivial(baseline, Example(source=wrong, target=right))
    assert found.sums == {"right": score}


def test_it_is_read_back_and_must_fit_the_model(copying, tmp_path):
    model = model_for(copying)
    baseline, path = learned(copying, model), tmp_path / "baseline.json"
    baseline.save(path)
    assert TrivialBaseline.load(path, model.config) == baseline
    other = replaced(TINY, {"vocabulary.size": 40})
    with pytest.raises(UserError, match=r"baseline\.json: counts: found \d+ of them; this model has 40"):
        TrivialBaseline.load(path, other)
    for text in ("{}", '{"counts": [1.5], "target": []}', "[]", '{"counts": [-1], "target": []}'):
        path.write_text(text)
        with pytest.raises(UserError, match=r"baseline\.json"):
            TrivialBaseline.load(path, model.config)


def test_a_tagger_is_compared_with_the_most_frequent_tag_of_each_word(tmp_path):
    """One tag for all words would be right at half of the positions."""
    path = tmp_path / "train.conll"
    path.write_text("the\tD\ncat\tN\n\na\tD\ndog\tN\n\n" * 6 + "the\tN\nrun\tV\n\n")
    task = TaggedData(train=str(path), validation=str(path)).load()
    report = reported(task)
    assert report.totals[0].baseline["position_accuracy"] == pytest.approx(25 / 26)  # unknown words are one word
    assert report.baseline == "the most frequent tag of each token"
    baseline = learned(task, model_for(task))
    (rest,) = task.validation[-1:]
    assert [baseline.errors(example) for example in task.validation[:2]] == [0, 0]
    assert baseline.errors(rest) == 1


def entailment(folder, count=120):
    """Two texts: whether the second has the word of the first tells nothing, whether it says "not" tells all but the
    texts of one word."""
    path = folder / "pairs.tsv"
    words = "abcdef"
    rows = [
        f"{words[n % 6]} not\tx {words[n % 5]}\tno" if n % 3 else f"x {words[n % 6]}\t{words[n % 5]} not\tyes"
        for n in range(count)
    ]
    path.write_text("\n".join(rows) + "\n")
    return LabelledData(train=str(path), validation=str(path)).load()


def test_two_texts_are_compared_with_a_naive_bayes_classifier(tmp_path):
    """The words of both texts together are the same; of which text they are decides."""
    task = entailment(tmp_path)
    report = reported(task)
    assert report.totals[0].baseline["error"] == 0.0
    assert report.baseline == "a naive Bayes classifier of the words"
    model = model_for(task)
    baseline, path = learned(task, model), tmp_path / "baseline.json"
    baseline.save(path)
    assert NaiveBayes.load(path, model.config) == baseline


def test_naive_bayes_by_hand():
    """Class 0: "4", "4 5"; class 1: "5 6". log n(c) + Σ log (n(w, c) + 1) / (Σ n(v, c) + 3)."""
    baseline = NaiveBayes(counts=(2, 1), end_id=2, pairs=(8, 0, 2, 10, 0, 1, 10, 1, 1, 12, 1, 1))
    for source, scores in (
        ((5, 2), (2 * 2 / 6, 1 * 2 / 5)),
        ((5, 6, 2), (2 * 2 / 6 * 1 / 6, 1 * 2 / 5 * 2 / 5)),
        ((9, 2), (2, 1)),
    ):
        assert baseline.classes(source) == (scores.index(max(scores)),)


@pytest.mark.parametrize("metric", ["sequence", "words", "characters"])
def test_pairs_are_compared_with_their_sources_where_that_is_better(tmp_path, metric):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"say {n} {n % 3}\tsay {n} {n % 2}\n" for n in range(60)))
    task = PairsData(train=str(path), validation=str(path), tokenizer="whitespace", metric=metric).load()
    report = reported(task)
    assert report.baseline == "the source as it is"
    (name, found), *_ = [(name, value) for name, value in report.totals[0].baseline.items() if name == report.decisive]
    same = sum(n % 3 == n % 2 for n in range(60))
    characters = sum(len(f"say {n} 1") for n in range(60))
    wanted = {"sequence_accuracy": same / 60, "word_error": 100 * (60 - same) / 180}
    assert found == pytest.approx((wanted | {"character_error": 100 * (60 - same) / characters})[name])
