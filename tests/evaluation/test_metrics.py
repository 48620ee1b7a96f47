"""Laws that hold for every metric, and a new metric as one file and one line of the registry."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import paper.fixed_length
import paper.last_word_pieces  # noqa: F401  both register a metric from outside the package
from paper.tasks.pieces import Pieces
from paper.tasks.words import Words
from small_pictures import write_digits
from small_task_models import letters, model_for
from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.calibration import Goal
from universal_transformer.evaluation.depth_curves import calibrate
from universal_transformer.evaluation.measure import Selection, evaluate
from universal_transformer.evaluation.metrics import METRICS, Inference, metric_of, scores
from universal_transformer.evaluation.report import Report
from universal_transformer.evaluation.scores import total
from universal_transformer.tasks import ControlData, LabelledData, ParsingData, PicturesData, PlansData, StoriesData
from universal_transformer.tasks.algorithmic import AlgorithmicData
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.pairs import PairsData
from universal_transformer.tasks.sides.recording import Spoken
from universal_transformer.tasks.task import Task
from universal_transformer.tasks.voice import SPEAKER_AND_DIGIT
from universal_transformer.training.run_config import TrainingConfig
from universal_transformer.training.task_metric import TaskMetric

OPTIONS = DecodingOptions()


def small_model(task):
    """A model of two steps, whose answers are short where they are its own."""
    short = {"generation.max_new_tokens": 6} if METRICS[task.metric].free_running else {}
    return model_for(task, max_steps=2, **short)


def stories(folder):
    return StoriesData(train_stories=6, validation_stories=2, test_stories=2).load()


def copying(folder):
    return AlgorithmicData(train_examples=8, validation_examples=4, test_examples=4, test_lengths=(5,)).load()


def pairs(folder):
    path = folder / "train.tsv"
    path.write_text("".join(f"a b {n} c\tc {n} b a\n" for n in range(40)))
    return PairsData(train=str(path), vocabulary_size=300).load()


def labels(folder):
    path = folder / "labels.tsv"
    path.write_text("".join(f"a {'bcd'[n % 3]} {n % 5}\t{'|xy|z'[n % 5 :]}|\n" for n in range(40)))
    return LabelledData(train=str(path), label_separator="|").load()


def words(folder):
    """Texts of a language model, each with another one."""
    draw = np.random.default_rng(0)
    texts = [tuple(draw.integers(4, 12, size=2 + n % 4).tolist()) for n in range(24)]
    examples = [Example(source=other, target=text) for text, other in zip(texts, texts[1:] + texts[:1], strict=True)]
    codec = Codec.shared(Words(tuple("abcdefgh")))
    return Task("words", codec, examples, examples[:6], {"test": examples[:6]}, "perplexity")


def pieces(folder):
    texts = [f"the {'abcd'[n % 4]}x b{n}" for n in range(12)]
    side = Pieces(Tokenizer.train(texts, kind="bpe", vocabulary_size=270), block_length=12)
    examples = [Example(source=(), target=side.of_words(text.split())) for text in texts]
    return Task("pieces", Codec.shared(side), examples, examples[:6], {"test": examples[:6]}, "last_word_pieces")


def cells(folder):
    examples = [Example(source=(4 + n % 3, 5, 6), target=(1 + n % 2, 2, 0)) for n in range(12)]
    fields = {"architecture": "tagger", "inputs.kind": "tokens", "vocabulary.size": 12, "vocabulary.num_classes": 3}
    return Task("cells", letters(fields=fields), examples, examples[:6], {"test": examples[:6]}, "positions")


def trees(folder):
    task = ParsingData(train_sentences=20, test_sentences=10).load()
    examples = next(iter(task.test.values()))
    return dataclasses.replace(task, test={"test": examples[:4]})


def pictures(folder):
    return PicturesData(data_dir=str(write_digits(folder)), side=4, levels=4).load()


def actions(folder):
    return ControlData(history=3, train_episodes=2, validation_episodes=1, test_episodes=2).load()


def plans(folder):
    return PlansData(history=3, plan=2, side=8, train_episodes=2, validation_episodes=1, test_episodes=2).load()


class TwoBands(Spoken):
    """Frames of two numbers, written two at once."""

    @property
    def target_fields(self):
        return {**Spoken(bands=2).target_fields, "outputs.stride": 2}


def frames(folder):
    draw = np.random.default_rng(0)
    examples = [Example((3, 4, 2), draw.normal(size=(4, 2)).astype(np.float32)) for _ in range(6)]
    return Task("frames", Codec(SPEAKER_AND_DIGIT, TwoBands()), examples, examples, {"test": examples}, "frames")


TASKS = {
    "error": stories, "accuracy": stories, "classes": stories, "labels": labels, "positions": cells, "tags": cells,
    "sequence": copying, "fixed_length": copying, "words": copying, "characters": pairs, "phonemes": pairs,
    "bleu": pairs, "rouge": pairs, "brackets": trees, "perplexity": words, "last_word": words, "ranking": words,
    "last_word_pieces": pieces, "intensities": pictures, "actions": actions, "plans": plans, "frames": frames,
}  # fmt: skip
"""A task for each metric: a metric without one fails `test_every_metric_has_a_task`."""


def test_every_metric_has_a_task():
    assert TASKS.keys() == METRICS.keys()


@pytest.fixture(scope="module", params=list(METRICS))
def scored(request, tmp_path_factory):
    """A task with the metric, a model of it, and the answers to its test."""
    task = dataclasses.replace(TASKS[request.param](tmp_path_factory.mktemp("task")), metric=request.param)
    model, (examples,) = small_model(task), task.test.values()
    with torch.inference_mode():
        answers = metric_of(task).answers(Inference(model, OPTIONS), examples)
    return task, model, answers


def test_laws_of_a_metric(scored, tmp_path):
    """The scores of a report are those of the summed answers, in any batches; all of them are known and saved."""
    task, model, answers = scored
    metric = metric_of(task)
    baseline = metric.learn(task.train, model.config)
    report = evaluate(model, task, options=OPTIONS, baseline=baseline, batch_tokens=40)
    (whole,) = report.totals
    found = metric.shown_scores(total(answers))
    assert found.keys() <= whole.metrics.keys() <= {score.name for score in metric.shown} <= scores().keys()
    for name, value in found.items():
        assert whole.metrics[name] == pytest.approx(value, rel=1e-4), name
        assert math.isfinite(value)
    assert report.decisive in whole.metrics
    assert whole.baseline.keys() <= whole.metrics.keys()
    assert report.baseline == metric.describe(baseline) != ""
    assert Report.from_dict(report.to_dict()) == report
    assert all(scores()[name].title in "\n".join(report.lines()) for name in whole.metrics)
    baseline.save(tmp_path / "baseline.json")
    assert metric.statistics.load(tmp_path / "baseline.json", model.config) == baseline


def test_laws_of_one_example(scored):
    """Its score lies in [0, 1], it has not changed from itself, and its place among the others does not matter."""
    task, model, answers = scored
    metric, (examples,) = metric_of(task), task.test.values()
    trivial = [metric.trivial(metric.learn(task.train, model.config), example) for example in examples]
    for sums in (*answers, *trivial):
        score = metric.example_score(sums)
        assert 0 <= score <= 1
        assert not metric.right_or_wrong or score in (0, 0.5, 1)
        assert metric.changed(sums.answer, sums.answer) == 0
    assert metric.scores(total(reversed(answers))) == pytest.approx(metric.scores(total(answers)))
    assert all(sums.steps.get("encoder") or sums.steps.get("decoder") for sums in answers)


def test_what_all_others_know_of_a_metric(scored):
    """Validation and calibration ask the protocol; what does not fit is refused in one line."""
    task, model, _ = scored
    metric = metric_of(task)
    chosen = TaskMetric.of(task, TrainingConfig(max_updates=1, select_by="metric", select_examples=2))
    if chosen is not None:
        assert not metric.chosen_by_loss
        with torch.no_grad():
            assert chosen.score(model, seconds=0.0, check=lambda: None).name == metric.decisive
    goal = Goal(tolerance=0.9, confidence=0.2, rule="max_steps")
    if metric.uncalibrated("drop"):
        with pytest.raises(UserError, match="confidence"):
            calibrate(model, task, Selection("test"), goal=goal)
    else:
        assert calibrate(model, task, Selection("test"), goal=goal).metric == task.metric
    other = next(name for name, kind in METRICS.items() if kind.architecture != metric.architecture)
    with pytest.raises(UserError, match=f"is scored by {other}, which needs architecture"):
        evaluate(model, dataclasses.replace(task, metric=other))


LENGTHS = '''
from universal_transformer.evaluation.metrics import Score
from universal_transformer.evaluation.metrics.written import WrittenText
from universal_transformer.evaluation.scores import ScoreSums

class Lengths(WrittenText):
    """Share of answers that are as long as their target."""

    shown = (Score("same_length", "same length", 3, "high"),)
    decisive = "same_length"
    right_or_wrong = True

    def of_text(self, text, example):
        return ScoreSums(sums={"same": float(len(text) == len(self.reference(example)))})

    def scores(self, sums):
        return {"same_length": sums.mean("same")}

    def example_score(self, sums):
        return sums.sums["same"]
'''


def test_a_new_metric_is_one_file_and_one_line(tmp_path, monkeypatch):
    (tmp_path / "member_lengths.py").write_text(LENGTHS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METRICS, "lengths", __import__("member_lengths").Lengths)
    task = dataclasses.replace(copying(tmp_path), metric="lengths")
    model, metric = small_model(task), metric_of(task)
    report = evaluate(model, task, baseline=metric.learn(task.train, model.config))
    assert "same length" in "\n".join(report.lines())
    assert Report.from_dict(report.to_dict()) == report
    assert report.baseline.startswith("always '")
    goal = Goal(tolerance=0.9, confidence=0.2, rule="max_steps")
    assert "turn from right to wrong" in calibrate(model, task, Selection("test"), goal=goal).promise
    chosen = TaskMetric.of(task, TrainingConfig(max_updates=1, select_by="metric"))
    with torch.no_grad():
        assert chosen.score(model, seconds=0.0, check=lambda: None).name == "same_length"
