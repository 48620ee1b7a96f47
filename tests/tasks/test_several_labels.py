"""Texts that have any number of labels: from a file to answers, against naive loops."""

import json
import math
import runpy
import sys
from pathlib import Path

import pytest
import torch

from universal_transformer.cli import main
from universal_transformer.data.batch import collate
from universal_transformer.data.example import ABSENT, PRESENT, Example, size
from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics.labels import CommonLabels, LabelScores
from universal_transformer.evaluation.scores import total
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.universal import MultiLabelClassifier
from universal_transformer.registry import build
from universal_transformer.tasks import LabelledData, TaggedData
from universal_transformer.training.objective import objective
from universal_transformer.typed import replaced

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_answers.py"
NAMES = ("animal", "big", "red")
TEXTS = ["a red fox", "a big red bus", "a mouse", "an idea", "a big horse"]
SETS = [("animal", "red"), ("big", "red"), ("animal",), (), ("animal", "big")]


def write(folder, name="train.tsv", *, texts=TEXTS, sets=SETS):
    path = folder / name
    if name.endswith(".jsonl"):
        rows = [json.dumps({"text": text, "label": given}) for text, given in zip(texts, sets, strict=True)]
    else:
        rows = [f"{text}\t{'|'.join(given)}" for text, given in zip(texts, sets, strict=True)]
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def codes(given):
    return tuple(PRESENT if name in given else ABSENT for name in NAMES)


@pytest.mark.parametrize("name", ["train.tsv", "train.jsonl"])
def test_each_label_of_a_text_is_read_and_written_again(tmp_path, name):
    path = str(write(tmp_path, name))
    task = LabelledData(train=path, validation=path, label_separator="|").load()
    assert task.codec.target.labels == NAMES
    assert [example.target for example in task.train] == list(map(codes, SETS))
    assert [task.codec.render(example.target) for example in task.train] == [
        "animal|red",
        "big|red",
        "animal",
        "|",
        "animal|big",
    ]
    assert [size(example) for example in task.train] == [len(text.split()) + 1 for text in TEXTS]


def test_faults_of_labels_are_named(tmp_path):
    path = write(tmp_path)
    other = write(tmp_path, "other.tsv", texts=["a cat"], sets=[("animal", "green")])
    with pytest.raises(UserError, match=r"other.tsv:1: unknown label 'green'"):
        LabelledData(train=str(path), validation=str(other), label_separator="|").load()
    within = write(tmp_path, "within.jsonl", texts=["a"], sets=[("animal|big",)])
    with pytest.raises(UserError, match=r"within.jsonl:1: '\|' in 'animal\|big'; --data.label-separator"):
        LabelledData(train=str(within), label_separator="|").load()
    with pytest.raises(UserError, match=r"--data.class-weights: weighs classes of which a text has one"):
        LabelledData(train=str(path), label_separator="|", class_weights="balanced")
    without = write(tmp_path, "without.tsv", texts=["a", "b"], sets=[(), ()])
    with pytest.raises(UserError, match=r"no label; expected at least one"):
        LabelledData(train=str(without), validation=str(path), label_separator="|").load()


@pytest.fixture
def model(tmp_path):
    path = str(write(tmp_path))
    task = LabelledData(train=path, validation=path, label_separator="|").load()
    config = replaced(
        ModelConfig(), {"sizes.width": 16, "sizes.filter_width": 16, "sizes.num_heads": 2, "step.dropout": 0.0}
    )
    torch.manual_seed(0)
    return build(task.configure(config)), task


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_cross_entropy_of_each_label(model, smoothing):
    model, task = model
    assert isinstance(model, MultiLabelClassifier)
    batch = collate(task.train, indices=range(5))
    loss = objective(model, batch, label_smoothing=smoothing, ponder_weight=0.0)
    nats, right = 0.0, 0
    for example in task.train:
        (logits,) = model(torch.tensor([example.source])).logits.tolist()
        for logit, given in zip(logits, example.target, strict=True):
            wanted = (given == PRESENT) * (1 - smoothing) + smoothing / 2
            probability = 1 / (1 + math.exp(-logit))
            nats -= wanted * math.log(probability) + (1 - wanted) * math.log(1 - probability)
            right += (logit > 0) == (given == PRESENT)
    assert loss.total.item() == pytest.approx(nats / 15, rel=1e-5)
    assert (int(loss.num_targets), int(loss.right.sum())) == (15, right)
    steps = objective(model, batch, label_smoothing=smoothing, ponder_weight=0.0, step_loss="mean")
    assert float(steps.cross_entropy) == pytest.approx(nats / 15, rel=1e-5)
    assert steps.total.item() != loss.total.item()


def test_scores_are_those_of_a_naive_count(model):
    given = [("animal",), ("big", "red"), (), ("red",), ("animal", "big")]
    examples = [Example((1,), codes(wanted)) for wanted in SETS]
    metric = LabelScores(model[1])
    sums = total(metric.sums(example, codes(named)) for example, named in zip(examples, given, strict=True))
    f1, counts = [], [0, 0]
    for name in NAMES:
        pairs = [(name in wanted, name in named) for wanted, named in zip(SETS, given, strict=True)]
        twice, named = 2 * pairs.count((True, True)), sum(map(sum, pairs))
        f1.append(twice / named)
        counts = [counts[0] + twice, counts[1] + named]
    wanted = {"micro_f1": counts[0] / counts[1], "macro_f1": sum(f1) / 3, "all_labels": 2 / 5}
    assert metric.scores(sums) == pytest.approx(wanted)
    assert metric.scores(metric.sums(examples[3], codes(()))) == {"micro_f1": 1.0, "macro_f1": 1.0, "all_labels": 1.0}


def test_the_baseline_answers_common_labels():
    baseline = CommonLabels.learn([Example((1,), codes(wanted)) for wanted in SETS], ModelConfig())
    assert (baseline.counts, baseline.labels) == ((3, 2, 2), codes(("animal",)))
    shares = [4 / 7, 3 / 7, 3 / 7]
    nats = [
        -math.log(share if name in wanted else 1 - share)
        for wanted in SETS
        for name, share in zip(NAMES, shares, strict=True)
    ]
    assert baseline.loss(list(map(codes, SETS))) == pytest.approx(sum(nats) / 15)
    rare = CommonLabels.learn([Example((1,), codes(wanted)) for wanted in [("big",), (), ()]], ModelConfig())
    assert rare.labels == codes(("big",))
    several = CommonLabels.learn([Example((1,), codes([name])) for name in NAMES], ModelConfig())
    assert several.labels == codes(NAMES[:1]), "one of several that are as frequent"
    assert CommonLabels.learn([Example((1,), codes(()))], ModelConfig()).labels == codes(())


def test_a_run_learns_labels_and_answers_in_each_form(tmp_path, capsys, monkeypatch):
    train = write(tmp_path, texts=[f"{text} {n}" for n in range(12) for text in TEXTS], sets=SETS * 12)
    test, run = write(tmp_path, "test.jsonl"), str(tmp_path / "run")
    given = ["--data.train", str(train), "--data.validation", str(test), "--data.label-separator", "|"]
    small = [
        "--width",
        "32",
        "--ffn",
        "64",
        "--warmup",
        "5",
        "--minutes",
        "none",
        "--max-updates",
        "60",
        "--lr",
        "5e-3",
    ]
    assert main(["train", "labelled", *given, *small, "--run", run, "--quiet"]) == 0
    answers = tmp_path / "answers.jsonl"
    capsys.readouterr()
    assert main(["evaluate", run, "--json", "--predictions", str(answers)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["totals"]
    assert row["metrics"].keys() == row["baseline"].keys() == {"micro_f1", "macro_f1", "all_labels"}
    assert row["metrics"]["all_labels"] == 1.0 > row["baseline"]["all_labels"]
    assert [json.loads(line)["answer"] for line in answers.read_text().splitlines()] == [
        "animal|red",
        "big|red",
        "animal",
        "|",
        "animal|big",
    ]
    assert main(["predict", run, str(test), "--format", "tsv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{text}\t{'|'.join(named) or '|'}" for text, named in zip(TEXTS, SETS, strict=True)
    ]
    assert main(["predict", run, str(test), "--format", "jsonl"]) == 0
    for line, named in zip(capsys.readouterr().out.splitlines(), SETS, strict=True):
        found = json.loads(line)
        assert [label["text"] for label in found["output"]] == list(named)
        assert found["score"] <= sum(label["score"] for label in found["output"]) <= 0
    assert main(["export", run, "--format", "onnx"]) == 0
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path / "run" / "export" / "onnx"), *TEXTS])
    capsys.readouterr()
    runpy.run_path(str(EXAMPLE))
    assert capsys.readouterr().out.splitlines() == ["|".join(named) or "|" for named in SETS]
    pytest.importorskip("matplotlib")
    assert main(["plot", run]) == 0
    assert "micro-F1" in (tmp_path / "run" / "report.html").read_text()
    capsys.readouterr()
    assert main(["evaluate", run, "--exit", "confidence:0.9"]) == 2
    assert "this model gives labels" in capsys.readouterr().err


def test_weights_of_tags_are_those_of_their_terms(tmp_path):
    path = tmp_path / "tags.tsv"
    path.write_text("the\tD\ncat\tN\nsleeps\tV\n\na\tD\ndog\tN\n\n")
    fields = {"train": str(path), "validation": str(path)}
    plain, task = (TaggedData(**fields, class_weights=weights).load() for weights in ("", "D=3"))
    torch.manual_seed(0)
    config = replaced(
        ModelConfig(), {"sizes.width": 16, "sizes.filter_width": 16, "sizes.num_heads": 2, "step.dropout": 0.0}
    )
    model = build(task.configure(config))
    batches = [collate(found.train, indices=range(2)) for found in (plain, task)]
    losses = [objective(model, batch, label_smoothing=0.0, ponder_weight=0.0).total.item() for batch in batches]
    nats = []
    for example in task.train:
        rows = model(torch.tensor([example.source])).logits[0].log_softmax(-1)
        nats += [
            (task.codec.target.tags[tag - 1], -rows[place, tag].item()) for place, tag in enumerate(example.target)
        ]
    mean = (3 + 1 + 1 + 3 + 1) / 5
    assert losses[0] == pytest.approx(sum(loss for _, loss in nats) / 5, rel=1e-5)
    assert losses[1] == pytest.approx(sum((3 if tag == "D" else 1) / mean * loss for tag, loss in nats) / 5, rel=1e-5)
    with pytest.raises(UserError, match=r"--data.class-weights: unknown tag 'X'"):
        TaggedData(**fields, class_weights="X=2").load()
