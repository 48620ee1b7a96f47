"""An update whose loss or gradient norm is far above the last ones changes no weight."""

import dataclasses
import math
import random

import pytest
import torch

from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.trainer import train
from universal_transformer.training import run as training_run
from universal_transformer.training import watches
from universal_transformer.training.watches import LASTING, LEAST, WINDOW, OutlierWatch

from . import tiny


def left_out(losses, *, sigmas=6.0, norm=1.0):
    """The indices of the losses that are outliers."""
    watch = OutlierWatch()
    values = [{"loss": loss, "gradient_norm": norm} for loss in losses]
    found = [index for index, value in enumerate(values) if watch.inspect(value, sigmas=sigmas)]
    assert all(len(kept) <= WINDOW for kept in watch.recent.values())
    return found


@pytest.mark.parametrize("noise", ["normal", "falling", "uniform"])
def test_spikes_of_ten_sigma_are_left_out_and_few_others(noise):
    draw, spikes = random.Random(0), set(range(200, 1_500, 20))
    mean = {"normal": lambda _: 2.0, "falling": lambda at: 0.1 + 1 / (1 + at / 2000), "uniform": lambda _: 1.5}[noise]
    sigma = {"normal": 0.1, "falling": 0.05, "uniform": 12**-0.5}[noise]
    spread = (lambda: draw.uniform(-0.5, 0.5)) if noise == "uniform" else (lambda: draw.gauss(0, sigma))
    found = set(left_out(mean(at) + (10 * sigma if at in spikes else spread()) for at in range(1_500)))
    assert spikes <= found
    assert len(found - spikes) <= 1


def test_norms_with_a_long_tail_are_no_outliers_but_a_spike_is():
    draw, watch = random.Random(0), OutlierWatch()
    norms = [draw.lognormvariate(-3, 0.5) for _ in range(5000)]
    norms[4000] = math.exp(-3 + 10 * 0.5)
    found = [at for at, norm in enumerate(norms) if watch.inspect({"loss": 1.0, "gradient_norm": norm}, sigmas=6.0)]
    assert found == [4000]


def test_one_huge_outlier_does_not_hide_the_next():
    draw = random.Random(0)
    losses = [draw.gauss(2, 0.1) for _ in range(300)]
    losses[150], losses[160] = 1e6, 3.0
    assert left_out(losses) == [150, 160]


def test_a_lasting_rise_is_left_out_for_some_updates_only():
    draw = random.Random(0)
    losses = [draw.gauss(2 if at < 200 else 20, 0.1) for at in range(400)]
    found = left_out(losses)
    assert found == list(range(200, 200 + LASTING))


def test_equal_values_and_the_first_ones_are_no_outliers():
    assert left_out([1.0] * 300) == []
    assert left_out([*[1.0] * (LEAST - 1), 100.0, 1.0]) == []


def spiking(monkeypatch, update):
    """Multiply the loss of an update, as often as it is computed."""
    objective, seen = training_run.objective, []

    def poisoned(model, batch, **weights):
        loss = objective(model, batch, **weights)
        seen.append({name: value.detach().clone() for name, value in model.tensors().items()})
        return dataclasses.replace(loss, total=loss.total * 1e4) if len(seen) == update else loss

    monkeypatch.setattr(training_run, "objective", poisoned)
    return seen


def test_the_weights_stay_and_a_resume_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(watches, "LEAST", 5)
    config, task = tiny.run_config(max_updates=12, validate_every=100, skip_outliers=6.0), tiny.task()
    task = dataclasses.replace(task, validation=[])
    with monkeypatch.context() as patch:
        before = spiking(patch, 9)
        train(config, tmp_path / "whole", task=task, quiet=True)
    assert all(torch.equal(value, before[9][name]) for name, value in before[8].items())
    assert not all(torch.equal(value, before[10][name]) for name, value in before[9].items())
    said = [line for line in read_metrics(tmp_path / "whole" / "metrics.jsonl") if line["event"] == "outlier"]
    assert [line["update"] for line in said] == [9]
    assert "loss" in said[0]["text"]
    with monkeypatch.context() as patch:
        spiking(patch, 9)
        short = dataclasses.replace(config, training=dataclasses.replace(config.training, max_updates=7))
        train(short, tmp_path / "halves", task=task, quiet=True)
        train(config, tmp_path / "halves", task=task, resume=True, quiet=True)
    assert tiny.losses(tmp_path / "halves") == tiny.losses(tmp_path / "whole")


def test_without_it_nothing_is_kept(tmp_path, monkeypatch):
    states = []
    save = training_run.TrainingRun.save
    monkeypatch.setattr(
        training_run.TrainingRun, "save", lambda run: (states.append(run.state.outliers.recent), save(run))[1]
    )
    train(tiny.run_config(), tmp_path / "run", task=tiny.task(), quiet=True)
    assert states
    assert not any(states)
