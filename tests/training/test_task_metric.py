"""Weights that are chosen by the metric of the task: the same training, another choice."""

import dataclasses
import os
import signal
import sys

import pytest

from configs import with_fields
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.data.batch import collate
from universal_transformer.errors import UserError
from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.registry import build, load_pretrained
from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.trainer import train
from universal_transformer.training import batches as training_batches
from universal_transformer.training.run_config import TrainingConfig
from universal_transformer.training.task_metric import SHARE, TaskMetric, TaskScore
from universal_transformer.training.validation import ValidationScore
from universal_transformer.typed import replaced

from . import tiny


def validations(folder):
    return [line for line in read_metrics(folder / "metrics.jsonl") if line["event"] == "validation"]


def task_of(measure):
    architecture = "encoder_decoder" if measure == "sequence" else "language_model"
    return dataclasses.replace(tiny.task(architecture, count=80), metric=measure)


@pytest.mark.parametrize(
    ("measure", "name", "changes"),
    [
        ("sequence", "sequence_accuracy", {"halting": True}),
        ("sequence", "sequence_accuracy", {"position_coordinates": "learned"}),
        ("last_word", "perplexity", {"halting": True}),
    ],
)
def test_training_is_the_same_and_the_best_weights_are_those_of_the_best_metric(tmp_path, measure, name, changes):
    task, limits = task_of(measure), {"max_updates": 20, "validate_every": 4, "learning_rate": 0.02}
    for folder, chosen in (("loss", {}), ("metric", {"select_by": "metric", "select_examples": 8})):
        config = tiny.run_config(with_fields(tiny.model_config(), **changes), **limits, **chosen)
        result = train(config, tmp_path / folder, task=task, quiet=True)
    assert tiny.losses(tmp_path / "loss") == tiny.losses(tmp_path / "metric")
    lines = validations(tmp_path / "metric")
    assert len(lines) == 5
    assert {line["metric_name"] for line in lines} == {name}
    sign = 1 if name == "perplexity" else -1
    assert min((sign * line["metric"], line["cross_entropy"]) for line in lines) == result.score.rank(classes=False)
    assert {line.get("metric_name", name) for line in validations(tmp_path / "loss")} == {name}
    report = evaluate(load_pretrained(tmp_path / "metric" / "model"), task, Selection(split="validation", limit=8))
    assert report.totals[0].metrics[name] == pytest.approx(result.score.metric.value, rel=1e-5)


def test_a_stopped_run_continues_bit_for_bit(tmp_path, monkeypatch):
    task = task_of("sequence")
    config = tiny.run_config(tiny.model_config(halting=True), select_by="metric", patience=5)
    whole = train(config, tmp_path / "whole", task=task, quiet=True)
    calls = 0

    def ringing(examples, *, indices):
        nonlocal calls
        calls += 1
        if calls == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return collate(examples, indices=indices)

    with monkeypatch.context() as patch:
        patch.setattr(training_batches, "collate", ringing)
        stopped = train(config, tmp_path / "run", task=task, quiet=True)
    assert stopped.stopped == "interrupted"
    resumed = train(config, tmp_path / "run", task=task, resume=True, quiet=True)
    assert resumed.score == whole.score
    assert tiny.losses(tmp_path / "run") == tiny.losses(tmp_path / "whole")


def test_the_metric_ranks_before_the_loss():
    def rank(loss, name, value, *, chooses=True):
        metric = TaskScore(name=name, value=value, count=8, chooses=chooses)
        return ValidationScore(loss, 0.1, 1.0, metric=metric).rank(classes=False)

    assert rank(2.0, "bleu", 30.0) < rank(1.0, "bleu", 20.0)
    assert rank(1.0, "perplexity", 3.0) < rank(0.5, "perplexity", 4.0)
    assert rank(1.0, "bleu", 20.0, chooses=False) < rank(2.0, "bleu", 30.0, chooses=False)


@pytest.mark.parametrize("measure", ["error", "classes", "accuracy", "perplexity"])
def test_what_validation_computes_anyway_is_not_computed_twice(measure):
    task = dataclasses.replace(tiny.task(), metric=measure)
    assert TaskMetric.of(task, TrainingConfig(max_updates=1, select_by="metric")) is None


def test_a_baseline_model_is_chosen_by_the_metric_too_and_compared_with_the_trivial_answer(tmp_path, capsys):
    config = tiny.run_config(LstmConfig(width=8), select_by="metric", learning_rate=1e-9)
    result = train(config, tmp_path / "run", task=task_of("sequence"))
    assert result.baseline.startswith("baseline (always '")
    assert result.baseline.endswith("the most frequent target) sequence accuracy 0.000")
    assert "sequence accuracy 0.000" in capsys.readouterr().out
    assert any("is not better than the baseline" in text for text in result.warnings)


def test_a_package_that_bleu_needs_is_missed_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    task = dataclasses.replace(task_of("sequence"), metric="bleu")
    with pytest.raises(UserError, match=r"universal-transformer\[metrics\]"):
        train(tiny.run_config(select_by="metric"), tmp_path / "run", task=task, quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_score_that_is_only_shown_takes_a_twentieth_of_the_time(monkeypatch):
    """Each example takes a second; a part has one example more than all before it."""
    task = dataclasses.replace(tiny.task("encoder_decoder", count=80), metric="sequence")
    task = dataclasses.replace(task, validation=task.train)
    model = build(replaced(tiny.model_config(), task.codec.model_fields))
    shown = TaskMetric.of(task, TrainingConfig(max_updates=1))
    now, asked = 0.0, []

    def answers(metric, inference, examples):
        nonlocal now
        now += len(examples)
        asked.extend(examples)
        return [metric.sums(example.target[:-1], example) for example in examples]

    monkeypatch.setattr("universal_transformer.training.task_metric.time.monotonic", lambda: now)
    monkeypatch.setattr(type(shown.metric), "answers", answers)
    assert shown.score(model, seconds=0.0, check=lambda: None) is None
    counts = [shown.score(model, seconds=seconds, check=lambda: None).count for seconds in (1000.0, 1100.0, 1e6)]
    assert counts == [31, 15, 80]
    assert now - 80 <= SHARE * 1100
    assert sorted(map(repr, asked[-80:])) == sorted(map(repr, task.validation))


def test_validation_says_what_its_error_is_and_shows_the_score_of_the_task(tmp_path, capsys, monkeypatch):
    """The error given the right tokens is small where answers are wrong as a whole."""
    monkeypatch.setattr("universal_transformer.training.task_metric.SHARE", 100.0)  # time for it even in a short run
    task = task_of("sequence")
    config = tiny.run_config(tiny.model_config(), max_updates=60, validate_every=30, learning_rate=0.01)
    result = train(config, tmp_path / "run", task=task)
    shown = capsys.readouterr().out
    assert "token error (teacher forcing) " in shown
    assert "validation error" not in shown
    *_, last = validations(tmp_path / "run")
    assert last["metric_name"] == "sequence_accuracy"
    assert 1 <= last["metric_examples"] <= len(task.validation)
    assert f" of {last['metric_examples']:,} example" in result.text
    assert "(always '" in result.text
