"""`ut evaluate --metric NAME` scores the answers of a run by another metric than that of its training."""

import pytest

from universal_transformer.cli import main
from universal_transformer.evaluation.metrics import METRICS
from universal_transformer.evaluation.report import Report

pytestmark = pytest.mark.usefixtures("loaded_once")


@pytest.fixture
def scored(tmp_path, monkeypatch):
    """The report of a pretrained model on two examples, which are shorter than those of its tests."""
    monkeypatch.chdir(tmp_path)

    def evaluate(model, *options):
        assert main(["evaluate", model, "--split", "validation", "--limit", "2", "--no-calibration", *options]) == 0
        name = f"report-validation{''.join(f'-metric-{metric}' for metric in options[1:])}-limit-2.json"
        return Report.load(tmp_path / model / name)

    return evaluate


@pytest.mark.parametrize(
    ("model", "metric", "alike"),
    [
        ("demo", "classes", {"error": lambda own: own["error"], "accuracy": lambda own: 1 - own["error"] / 100}),
        ("addition", "bleu", {"exact_match": lambda own: own["sequence_accuracy"]}),
        ("addition", "fixed_length", {"sequence_accuracy": lambda own: own["sequence_accuracy"]}),  # of the tables
        pytest.param(
            "sudoku",
            "tags",
            {name: lambda own, name=name: own[name] for name in ("position_accuracy", "sequence_accuracy")},
            marks=pytest.mark.slow,  # its boards are drawn first
        ),
    ],
)
def test_the_same_answers_are_scored_by_the_metric_that_is_named(model, metric, alike, scored, capsys):
    own, other = scored(model), scored(model, "--metric", metric)
    assert own.metric != other.metric == metric
    assert [(row.name, row.count, row.steps) for row in own.rows] == [
        (row.name, row.count, row.steps) for row in other.rows
    ]
    for before, after in zip((*own.rows, *own.totals), (*other.rows, *other.totals), strict=True):
        assert [*after.metrics] == [score.name for score in METRICS[metric].shown]
        for name, expected in alike.items():
            assert after.metrics[name] == pytest.approx(expected(before.metrics))
    titles = [score.title for score in METRICS[metric].shown]
    assert all(title in capsys.readouterr().out.split("written to")[1] for title in titles[:1])


@pytest.mark.parametrize(
    ("model", "metric", "said"),
    [
        ("demo", "luck", "--metric luck: expected one of error, accuracy, classes"),
        ("demo", "bleu", 'is scored by bleu, which needs architecture "encoder_decoder"; this model has "classifier"'),
        ("addition", "frames", "is scored by frames; this model writes tokens"),
    ],
)
def test_a_metric_that_does_not_fit_is_one_line(model, metric, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", model, "--metric", metric, "--limit", "2"]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 1
    assert said in shown[0]
    assert not list(tmp_path.iterdir())


def test_a_metric_that_needs_another_baseline_or_other_targets(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.tsv").write_text("".join(f"{'red' if n % 3 else 'blue'} {n}\t{'ab'[n % 2]}\n" for n in range(60)))
    tiny = ["--width", "8", "--filter-width", "8", "--num-heads", "1", "--max-steps", "1", "--minutes", "None"]
    tiny += ["--max-updates", "2", "--quiet", "--data.train", "own.tsv", "--tokenizer", "word"]
    assert main(["train", "labelled", *tiny, "--run", "labels"]) == 0
    assert main(["evaluate", "labels", "--metric", "accuracy"]) == 0
    assert main(["train", "pairs", *tiny, "--run", "pairs"]) == 0
    assert main(["evaluate", "pairs", "--metric", "brackets"]) == 2
    assert "ut: metric brackets: the target 'b' is no tree of its" in capsys.readouterr().err.replace("'a'", "'b'")
