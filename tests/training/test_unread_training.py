"""A field of the training that is changed changes what is trained or written, or is named by `unread`."""

import dataclasses

import pytest

from training import tiny
from universal_transformer.errors import UserError
from universal_transformer.registry import load_pretrained
from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.trainer import train
from universal_transformer.training.run_config import TrainingConfig
from universal_transformer.typed import replaced

CHANGED = {
    "max_updates": 5,
    "batch_tokens": 24,
    "optimizer": "adamw",
    "curriculum": 9.0,
    "learning_rate": 2e-3,
    "betas": (0.8, 0.9),
    "epsilon": 1e-3,
    "weight_decay": 0.1,
    "accumulate": 2,
    "parallel": "shards",
    "schedule": "cosine",
    "warmup_updates": 2,
    "clip_norm": 1e-2,
    "label_smoothing": 0.1,
    "ponder_weight": 0.1,
    "ponder_warmup_updates": 4,
    "halting_delay": 0.5,
    "validate_every": 2,
    "depth": "random",
    "step_loss": "mean",
    "average_checkpoints": 2,
    "ema_decay": 0.5,
    "log_every": 2,
    "seed": 1,
    "precision": "bfloat16",
}
ELSEWHERE = {
    "minutes": "a limit that is not reached",
    "patience": "a limit that is not reached",
    "skip_outliers": "a limit that is not reached",
    "select_by": "named when the metric of the task is known",
    "select_examples": "refused without select_by",
    "stage": "refused without another run",
    "save_minutes": "what a checkpoint holds does not depend on it",
    "threads": "how, not what",
    "compile": "how, not what",
    "device": "how, not what",
    "tracker": "where numbers are reported to",
}
CASES = {
    "fixed": ({"halting": False}, {}),
    "halting": ({"halting": True}, {}),
    "no ponder cost, decay": ({"halting": True}, {"ponder_weight": 0.0, "weight_decay": 0.2}),
    "one step": ({"halting": False, "max_steps": 1}, {}),
}


def test_every_field_is_tried():
    assert CHANGED.keys() | ELSEWHERE.keys() == {field.name for field in dataclasses.fields(TrainingConfig)}


def outcome(config, folder):
    """The weights, and the figures of all lines but those of time."""
    train(config, folder, task=tiny.task("encoder_decoder"), quiet=True)
    tensors = load_pretrained(folder / "model").tensors()
    figures = [
        {name: value for name, value in line.items() if "second" not in name and name not in ("time", "spent")}
        for line in read_metrics(folder / "metrics.jsonl")
        if line["event"] != "start"
    ]
    return {name: tensor.tolist() for name, tensor in tensors.items()}, figures


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", CASES)
def test_another_value_changes_what_is_trained_or_is_refused_or_named(tmp_path, case):
    model, training = CASES[case]
    config = tiny.run_config(tiny.model_config(**model), max_updates=6, **training)
    before = outcome(config, tmp_path / "before")
    assert outcome(config, tmp_path / "again") == before
    named = {path.removeprefix("training.") for path, _ in config.unread()}
    for field, value in CHANGED.items():
        try:
            changed = replaced(config, {f"training.{field}": value})
        except UserError:
            continue
        same = outcome(changed, tmp_path / field) == before
        assert same == (field in named), f"{field}={value}"


def test_selection_by_a_metric_that_the_error_decides_is_named(tmp_path, capsys):
    for by in ("loss", "metric"):
        train(tiny.run_config(select_by=by), tmp_path / by, task=tiny.task())
        shown = capsys.readouterr().out
        assert ("training.select_by and training.select_examples: without effect" in shown) == (by == "metric")
    first, second = (load_pretrained(tmp_path / by / "model").tensors() for by in ("loss", "metric"))
    assert all(tensor.equal(second[name]) for name, tensor in first.items())
