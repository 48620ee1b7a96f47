"""Runs trained together are the runs that each would be alone."""

import dataclasses
import errno
import os
import signal

import pytest
import torch

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.data.batch import collate
from universal_transformer.errors import UserError
from universal_transformer.registry import load_pretrained
from universal_transformer.training import ensemble, trainer
from universal_transformer.training import stream as streams
from universal_transformer.training.ensemble import train_together
from universal_transformer.training.tracking import Metrics, read_metrics
from universal_transformer.training.trainer import train

from . import tiny

SEEDS = (0, 1, 5)
MODELS = {
    "classifier": ("classifier", {}),
    "classifier halting": ("classifier", {"halting": True}),
    "untied": ("classifier", {"tied": False, "norm": "pre"}),
    "encoder-decoder": ("encoder_decoder", {}),
    "encoder-decoder halting": ("encoder_decoder", {"halting": True, "norm": "pre"}),
    "random positions": ("encoder_decoder", {"position_offsets": "random"}),
    "scattered, independent": (
        "encoder_decoder",
        {"position_offsets": "scattered", "independent_offsets": True},
    ),
    "sink and parts": (
        "encoder_decoder",
        {
            "position_coordinates": "rotary",
            "position_offsets": "scattered",
            "rotary_source": True,
            "source_sink": True,
            "separator_id": 4,
        },
    ),
    "convolution": ("encoder_decoder", {"transition": "separable_convolution"}),
    "language model halting": ("language_model", {"halting": True}),
    "learned": ("language_model", {"position_coordinates": "learned", "step_coordinates": "learned"}),
}


def configs(model, *, seeds=SEEDS, **training):
    # Adam makes whole steps of gradients that are nothing but rounding, unless epsilon is larger than they are
    given = {"max_updates": 20, "learning_rate": 3e-3, "validate_every": 7, "epsilon": 1e-5, **training}
    return [tiny.run_config(model, seed=seed, **given) for seed in seeds]


def both(tmp_path, planned, task):
    """The same runs alone and together; their folders."""
    alone = [tmp_path / f"alone-{number}" for number in range(len(planned))]
    together = [tmp_path / f"together-{number}" for number in range(len(planned))]
    for config, folder in zip(planned, alone, strict=True):
        train(config, folder, task=task, quiet=True)
    results = train_together(planned, together, tasks=[task] * len(planned), quiet=True)
    assert [result.stopped for result in results] == ["max_updates"] * len(planned)
    return alone, together


def numbers(folder):
    """Losses and gradient norms of all updates, and what validations found."""
    lines = read_metrics(folder / "metrics.jsonl")
    updates = [(line["loss"], line["gradient_norm"]) for line in lines if line["event"] == "update"]
    judged = [(line["cross_entropy"], line["error"]) for line in lines if line["event"] == "validation"]
    return torch.tensor(updates), torch.tensor(judged)


def check_alike(alone, together, *, tolerance):
    for one, other in zip(alone, together, strict=True):
        for ours, theirs in zip(numbers(one), numbers(other), strict=True):
            # metrics are rounded to 32 bits
            torch.testing.assert_close(ours, theirs, rtol=max(tolerance, 1e-6), atol=max(tolerance, 1e-6))
        first, second = (load_pretrained(folder / "model").tensors() for folder in (one, other))
        for name, weights in first.items():
            torch.testing.assert_close(weights, second[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_each_member_is_the_run_it_would_be_alone(name, tmp_path):
    """First weights, order of the batches, random positions, clipping, Adam, validation."""
    architecture, fields = MODELS[name]
    planned = configs(tiny.model_config(dropout=0.0, **fields), label_smoothing=0.1)
    alone, together = both(tmp_path, planned, tiny.task(architecture))
    check_alike(alone, together, tolerance=1e-4)


def test_delayed_halting_is_delayed_for_members_too(tmp_path):
    planned = configs(tiny.model_config(dropout=0.0, halting=True), halting_delay=0.6)
    alone, together = both(tmp_path, planned, tiny.task())
    check_alike(alone, together, tolerance=1e-4)


def test_a_neural_gpu_is_trained_together_too(tmp_path):
    planned = configs(NeuralGpuConfig(width=6), seeds=(0, 1), max_updates=10)
    alone, together = both(tmp_path, planned, tiny.task("encoder_decoder"))
    check_alike(alone, together, tolerance=1e-4)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_in_float64_they_are_alike_to_nine_digits(architecture, tmp_path):
    torch.set_default_dtype(torch.float64)
    planned = configs(tiny.model_config(dropout=0.0, halting=True), seeds=(0, 1))
    alone, together = both(tmp_path, planned, tiny.task(architecture))
    check_alike(alone, together, tolerance=1e-9)


def test_dropout_is_drawn_for_each_member_by_itself(tmp_path):
    """Two members with the same seed and the same batch: their losses differ by their masks only, as often as not."""
    planned = configs(tiny.model_config(dropout=0.5), seeds=(0, 0), max_updates=1)
    folders = [tmp_path / "a", tmp_path / "b"]
    train_together(planned, folders, tasks=[tiny.task()] * 2, quiet=True)
    first, second = (float(numbers(folder)[0][0, 0]) for folder in folders)
    assert first != second
    train(planned[0], tmp_path / "alone", task=tiny.task(), quiet=True)
    alone = float(numbers(tmp_path / "alone")[0][0, 0])
    assert abs(first - alone) < 1.0


def test_losses_under_dropout_are_distributed_as_alone(tmp_path):
    planned = configs(tiny.model_config(dropout=0.3), seeds=[0] * 64, max_updates=1, batch_tokens=120)
    task = tiny.task()
    train_together(planned, [tmp_path / f"{n}" for n in range(64)], tasks=[task] * 64, quiet=True)
    together = torch.tensor([float(numbers(tmp_path / f"{n}")[0][0, 0]) for n in range(64)]).double()
    built = ensemble.Member.build(
        planned[0], task.configure(planned[0].model), folder=tmp_path, task=task, device=torch.device("cpu")
    )
    stream = streams.Stream(task.train, batch_tokens=120, seed=0, device=torch.device("cpu"))
    batch, _ = stream.current()
    built.model.train()
    with torch.no_grad():
        alone = torch.stack(
            [
                ensemble.loss_of(
                    built.model(batch.source), batch.target, label_smoothing=0.0, ponder_weight=0.0
                ).total
                for _ in range(256)
            ]
        ).double()
    error = (together.var() / 64 + alone.var() / 256).sqrt()
    assert abs(together.mean() - alone.mean()) < 4 * error
    assert 0.5 < together.std() / alone.std() < 2.0


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_n_updates_and_n_more_after_a_resume_are_2n_updates_bit_for_bit(tmp_path, dropout):
    task, model = tiny.task(), tiny.model_config(dropout=dropout, position_offsets="random")
    whole, half = (configs(model, max_updates=updates) for updates in (10, 5))
    straight, halves = ([tmp_path / f"{kind}-{n}" for n in range(3)] for kind in ("straight", "halves"))
    tasks = [task] * 3
    train_together(whole, straight, tasks=tasks, quiet=True)
    train_together(half, halves, tasks=tasks, quiet=True)
    train_together(whole, halves, tasks=tasks, resume=True, quiet=True)
    for one, other in zip(straight, halves, strict=True):
        assert len(tiny.losses(one)) == 10
        assert tiny.losses(one) == tiny.losses(other)


def test_a_member_can_be_gone_on_with_alone_and_members_end_when_they_end(tmp_path):
    task, model = tiny.task(), tiny.model_config(dropout=0.0)
    short, long = configs(model, seeds=(0,), max_updates=4)[0], configs(model, seeds=(1,), max_updates=9)[0]
    folders = [tmp_path / "short", tmp_path / "long"]
    results = train_together([short, long], folders, tasks=[task] * 2, quiet=True)
    assert [result.updates for result in results] == [4, 9]
    longer = dataclasses.replace(short, training=dataclasses.replace(short.training, max_updates=9))
    train(longer, folders[0], task=task, resume=True, quiet=True)
    train(longer, tmp_path / "alone", task=task, quiet=True)
    torch.testing.assert_close(numbers(folders[0])[0], numbers(tmp_path / "alone")[0], rtol=1e-4, atol=1e-4)


def test_ctrl_c_saves_every_member_and_loses_nothing(tmp_path, monkeypatch, capsys):
    task, planned = tiny.task(), configs(tiny.model_config(), max_updates=8)
    straight, stopped = ([tmp_path / f"{kind}-{n}" for n in range(3)] for kind in ("straight", "stopped"))
    train_together(planned, straight, tasks=[task] * 3, quiet=True)
    batches = 0

    def ringing(examples, *, indices):
        nonlocal batches
        batches += 1
        if batches == 8:
            os.kill(os.getpid(), signal.SIGINT)
        return collate(examples, indices=indices)

    with monkeypatch.context() as patch:
        patch.setattr(streams, "collate", ringing)
        results = train_together(planned, stopped, tasks=[task] * 3)
    assert [result.stopped for result in results] == ["interrupted"] * 3
    assert "stopped-1: stopped by SIGINT" in capsys.readouterr().out
    assert all((folder / "model").is_dir() for folder in stopped)
    train_together(planned, stopped, tasks=[task] * 3, resume=True, quiet=True)
    for one, other in zip(straight, stopped, strict=True):
        assert tiny.losses(one) == tiny.losses(other)


def test_a_member_that_fails_leaves_the_others_as_they_are(tmp_path):
    task, model = tiny.task(), tiny.model_config(dropout=0.0)
    good, bad = (
        configs(model, seeds=(0,))[0],
        configs(model, seeds=(1,), learning_rate=1e30, clip_norm=0.0)[0],
    )
    results = train_together([bad, good], [tmp_path / "bad", tmp_path / "good"], tasks=[task] * 2, quiet=True)
    assert isinstance(results[0], UserError)
    assert "not finite" in str(results[0])
    train(good, tmp_path / "alone", task=task, quiet=True)
    check_alike([tmp_path / "alone"], [tmp_path / "good"], tolerance=1e-4)


@pytest.mark.parametrize("place", ["save_model", "metrics"])
def test_a_member_whose_disk_refuses_leaves_the_others_as_they_are(tmp_path, monkeypatch, place):
    planned = configs(tiny.model_config(dropout=0.0), seeds=(0, 1), max_updates=5)
    folders, save, write = [tmp_path / "bad", tmp_path / "good"], trainer.folders.save_model, Metrics.write

    def full(given, *rest, **fields):
        bad = given == folders[0] if place == "save_model" else "bad" in given._file.name
        if bad and fields.get("update", 5) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return (save if place == "save_model" else write)(given, *rest, **fields)

    monkeypatch.setattr(
        *((trainer.folders, "save_model") if place == "save_model" else (Metrics, "write")), full
    )
    bad, good = train_together(planned, folders, tasks=[tiny.task()] * 2, quiet=True)
    assert str(bad) == f"{folders[0]}: No space left on device"
    assert (good.stopped, good.updates) == ("max_updates", 5)


def test_bfloat16(tmp_path):
    planned = configs(tiny.model_config(dropout=0.0), seeds=(0, 1), precision="bfloat16", max_updates=5)
    alone, together = both(tmp_path, planned, tiny.task())
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(numbers(one)[0], numbers(other)[0], rtol=0.05, atol=0.05)


def refused(planned, folders, **given):
    with pytest.raises(UserError) as found:
        train_together(planned, folders, tasks=[tiny.task()] * len(planned), quiet=True, **given)
    return str(found.value)


def test_what_cannot_be_one_program_is_refused_by_name(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    wide, narrow = (configs(tiny.model_config(width=width), seeds=(0,))[0] for width in (16, 32))
    assert "model.sizes: Sizes" in refused([wide, narrow], folders)
    smooth = configs(tiny.model_config(), seeds=(0,), label_smoothing=0.1)[0]
    assert "training.label_smoothing: 0.0 beside 0.1" in refused([wide, smooth], folders)
    lstm = [tiny.run_config(LstmConfig(width=8), seed=seed) for seed in (0, 1)]
    assert "LSTM" in refused(lstm, folders)
    padded = [tiny.run_config(tiny.model_config(ponder_padding=True), seed=seed) for seed in (0, 1)]
    assert "model.ponder_padding=True" in refused(padded, folders)
    again = [tiny.run_config(tiny.model_config(activation_checkpointing=True), seed=seed) for seed in (0, 1)]
    assert "model.activation_checkpointing" in refused(again, folders)
    assert "two runs in one folder" in refused([wide, wide], [folders[0]] * 2)
    assert "one folder each" in refused([wide], folders)
    assert not folders[0].exists()
