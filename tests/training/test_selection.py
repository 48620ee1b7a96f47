import pytest
import torch

from universal_transformer.registry import build
from universal_transformer.runs.trainer import train
from universal_transformer.training.run import TrainingRun
from universal_transformer.training.run_config import TrainingConfig
from universal_transformer.training.selection import WeightSelection

from . import tiny


@pytest.mark.parametrize("count", [None, 2, 3])
def test_the_average_is_the_mean_of_the_last_few(count):
    training = TrainingConfig(max_updates=1, average_checkpoints=count)
    averager = WeightSelection(training)
    weights = [{"a": torch.randn(3), "b": torch.randn(2, 2)} for _ in range(5)]
    for added in weights:
        averager.add(added)
    average = averager.average()
    if count is None:
        assert average is None
        return
    for name in ("a", "b"):
        expected = torch.stack([kept[name] for kept in weights[-count:]]).mean(0)
        torch.testing.assert_close(average[name], expected)
    again = WeightSelection(training)
    again.load(averager.tensors(), like=build(tiny.task().configure(tiny.model_config())))
    for name, value in again.average().items():
        assert torch.equal(value, average[name])


def test_a_running_mean_of_the_weights_is_that_of_a_naive_loop():
    model, expected = build(tiny.task().configure(tiny.model_config())), None
    selection = WeightSelection(TrainingConfig(max_updates=1, ema_decay=0.9))
    for update in range(1, 100):
        for tensor in model.tensors().values():
            tensor.detach().fill_(float(update))
        selection.add_update(model, update=update)
        decay = min(0.9, (1 + update) / (10 + update))
        expected = float(update) if expected is None else decay * expected + (1 - decay) * update
        assert selection.running.keys() == model.tensors().keys()
        assert all(float(tensor.mean()) == pytest.approx(expected, rel=1e-4) for tensor in selection.running.values())


@pytest.mark.parametrize(
    ("updates", "delay", "count"),
    [(18, 0.0, 4), (18, 0.6, 2), (15, 0.0, 3)],
    ids=["5, 10, 15 and the last", "15 and the last", "the last one is validated already"],
)
def test_the_average_is_of_validations_after_the_halting_delay(tmp_path, monkeypatch, updates, delay, count):
    added = []
    monkeypatch.setattr(WeightSelection, "add", lambda _, weights: added.append(weights))
    model = tiny.model_config(halting=True)
    config = tiny.run_config(model, max_updates=updates, validate_every=5, average_checkpoints=3, halting_delay=delay)
    train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    assert len(added) == count


def test_a_run_that_ends_before_its_halting_is_trained_averages_nothing(tmp_path, monkeypatch):
    added = []
    monkeypatch.setattr(WeightSelection, "add", lambda _, weights: added.append(weights))
    monkeypatch.setattr(TrainingRun, "halting_delayed", lambda *_: True)
    config = tiny.run_config(max_updates=5, validate_every=5, average_checkpoints=3)
    train(config, tmp_path / "run", task=tiny.task(), quiet=True)
    assert added == []
