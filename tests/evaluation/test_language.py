"""Measures of language models: ranking of right and wrong forms, and the last word of a passage."""

import dataclasses
import math

import pytest
import torch

from paper.tasks.words import Words
from small_task_models import model_for
from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import UNKNOWN
from universal_transformer.errors import UserError
from universal_transformer.evaluation import measure
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Task

CODEC = Codec.shared(Words(tuple("abcdefgh")))


def task_of(examples, metric):
    return Task("hand-made", CODEC, (), (), {"test": examples}, metric)


def random_ids(length):
    return tuple(torch.randint(4, 12, (length,)).tolist())


def pairs(*, same_beginning):
    found = []
    for number in range(24):
        good, bad = random_ids(2 + number % 5), random_ids(2 + number % 3)
        if same_beginning:
            bad = (*good[:-1], 4 + (good[-1] - 3) % 8)
        found.append(Example(source=bad, target=good, group=f"{number % 2} attractors"))
    return found


def log_probability(model, ids):
    """The chain rule, one word at a time."""
    total = 0.0
    with torch.no_grad():
        for end in range(1, len(ids) + 1):
            logits = model(torch.tensor([ids[:end]])).logits[0, -1].double()
            total += float(logits.log_softmax(-1)[ids[end - 1]])
    return total


@pytest.mark.parametrize("same_beginning", [True, False])
def test_ranking_compares_probabilities_of_whole_texts(same_beginning):
    examples = pairs(same_beginning=same_beginning)
    task = task_of(examples, "ranking")
    model = model_for(task)
    right = [log_probability(model, e.target) > log_probability(model, e.source) for e in examples]
    assert 0 < sum(right) < len(right)
    report = evaluate(model, task, batch_tokens=30)
    assert report.totals[0].metrics == {"accuracy": pytest.approx(sum(right) / len(right))}
    assert [row.metrics["accuracy"] for row in report.rows] == [
        pytest.approx(sum(right[start::2]) / 12) for start in (0, 1)
    ]
    assert report.steps("decoder").num_positions == sum(len(e.target) for e in examples)


@pytest.mark.parametrize("alone", [True, False])
def test_texts_that_are_the_same_are_not_ranked_above(alone):
    ids, others = random_ids(4), [] if alone else pairs(same_beginning=False)
    task = task_of([Example(source=ids, target=ids, group="same"), *others], "ranking")
    rows = evaluate(model_for(task), task).rows
    assert [row.metrics["accuracy"] for row in rows if row.group == "same"] == [0.0]


def test_ranking_needs_pairs_and_a_language_model(stories):
    task = task_of([Example(source=(), target=(4, 5))], "ranking")
    with pytest.raises(UserError, match="ranking needs texts with a right and a wrong form"):
        evaluate(model_for(task), task)
    with pytest.raises(UserError, match=r'scored by ranking, which needs architecture "language_model"'):
        evaluate(model_for(stories), dataclasses.replace(task, name="blimp"))


def test_only_the_last_word_of_a_passage_counts():
    examples = [Example(source=(), target=random_ids(2 + number % 4)) for number in range(20)]
    task = task_of(examples, "last_word")
    model = model_for(task)
    nats, right = 0.0, 0
    with torch.no_grad():
        for example in examples:
            logits = model(torch.tensor([example.target])).logits[0, -1].double()
            nats -= float(logits.log_softmax(-1)[example.target[-1]])
            right += int(logits.argmax()) == example.target[-1]
    report = evaluate(model, task, batch_tokens=17)
    metrics = report.totals[0].metrics
    assert metrics["perplexity"] == pytest.approx(math.exp(nats / len(examples)), rel=1e-5)
    assert metrics["accuracy"] == pytest.approx(right / len(examples))
    assert report.headline == "perplexity"
    assert metrics["known_perplexity"] == pytest.approx(metrics["perplexity"])
    unknown = task_of([*examples, Example(source=(), target=(4, UNKNOWN))], "last_word")
    both = evaluate(model, unknown).totals[0].metrics
    assert both["known_perplexity"] == pytest.approx(metrics["perplexity"], rel=1e-5)
    assert both["perplexity"] != pytest.approx(metrics["perplexity"], rel=1e-5)
    assert report.steps("decoder").num_positions == sum(len(e.target) for e in examples)


def test_an_unknown_last_word_is_never_right():
    task = task_of([Example(source=(), target=(4, UNKNOWN))], "last_word")
    model = model_for(task)
    with torch.no_grad():
        model.target.bias[UNKNOWN] = 1e3
    report = evaluate(model, task)
    assert report.totals[0].metrics == {
        "perplexity": pytest.approx(1.0),
        "accuracy": 0.0,
        "known_perplexity": 1.0,
    }


def test_an_unknown_token_is_never_right_and_their_number_is_noted():
    task = task_of([Example(source=(), target=(4, UNKNOWN, UNKNOWN)), Example(source=(), target=(5,))], "perplexity")
    model = model_for(task)
    with torch.no_grad():
        model.target.bias[UNKNOWN] = 1e3
    baseline = TrivialBaseline.learn(task.test["test"], model.config)
    assert baseline.most_frequent == UNKNOWN
    report = evaluate(model, task, baseline=baseline)
    assert report.totals[0].metrics["accuracy"] == report.totals[0].baseline["accuracy"] == 0
    note = "2 of 4 tokens (50.0%) are not in the vocabulary: never right, and <unknown> in the perplexity"
    assert note in report.notes
    known = evaluate(model, task_of([Example(source=(), target=(4, 5))], "perplexity"))
    assert not any("vocabulary" in note for note in known.notes)


def test_accuracy_of_classes_is_what_is_left_of_the_error(stories):
    model = model_for(stories)
    error = evaluate(model, stories).totals[0].metrics["error"]
    accuracy = evaluate(model, dataclasses.replace(stories, metric="accuracy")).totals[0].metrics["accuracy"]
    assert accuracy == pytest.approx(1 - error / 100)


def test_large_vocabularies_make_smaller_batches_and_the_same_figures(monkeypatch):
    task = task_of(pairs(same_beginning=False), "ranking")
    model = model_for(task)
    whole = evaluate(model, task)
    monkeypatch.setattr(measure, "LOGITS", 100)
    assert evaluate(model, task) == whole
