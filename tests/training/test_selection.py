import pytest
import torch
from safetensors.torch import load_file

from universal_transformer.registry import build
from universal_transformer.runs.journal import read_metrics
from universal_transformer.runs.trainer import train
from universal_transformer.training.run import TrainingRun
from universal_transformer.training.run_config import TrainingConfig
from universal_transformer.training.selection import WeightSelection, copy_weights
from universal_transformer.training.validation import Interrupted

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


def test_a_model_has_the_running_mean_while_it_is_validated_and_its_own_weights_again_afterwards():
    model = build(tiny.task().configure(tiny.model_config()))
    selection = WeightSelection(TrainingConfig(max_updates=1, ema_decay=0.9))
    with selection.validated(model):  # before the first update there is no mean
        pass
    for update in range(1, 4):
        for tensor in model.tensors().values():
            tensor.detach().add_(float(update))
        selection.add_update(model, update=update)
    own = copy_weights(model)
    with selection.validated(model):
        held = copy_weights(model)
    assert all(torch.equal(held[name], mean) for name, mean in selection.running.items())
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.tensors().items())
    assert not all(torch.equal(held[name], tensor) for name, tensor in own.items())


def test_a_validation_that_is_interrupted_gives_the_weights_back():
    model = build(tiny.task().configure(tiny.model_config()))
    selection = WeightSelection(TrainingConfig(max_updates=1, ema_decay=0.9))
    selection.add_update(model, update=1)
    own = copy_weights(model)
    selection.running = {name: tensor + 1 for name, tensor in own.items()}

    def interrupted():
        with selection.validated(model):
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.tensors().items())


def test_what_is_validated_and_kept_is_the_running_mean_and_training_does_not_notice(tmp_path):
    folders = {decay: tmp_path / str(decay) for decay in (None, 0.9)}
    for decay, folder in folders.items():
        config = tiny.run_config(max_updates=12, validate_every=4, ema_decay=decay, learning_rate=0.01)
        train(config, folder, task=tiny.task(), quiet=True)
    assert tiny.losses(folders[None]) == tiny.losses(folders[0.9])
    found = {
        decay: [line for line in read_metrics(folder / "metrics.jsonl") if line["event"] == "validation"]
        for decay, folder in folders.items()
    }
    assert [line["update"] for line in found[None]] == [line["update"] for line in found[0.9]] == [4, 8, 12]
    assert all(mean["cross_entropy"] != last["cross_entropy"] for mean, last in zip(*found.values(), strict=True))
    (newest,) = sorted((folders[0.9] / "checkpoints").iterdir())[-1:]
    best = load_file(newest / "best.safetensors")
    model = load_file(folders[0.9] / "model" / "model.safetensors")
    assert found[0.9][-1]["best"]
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.items())
    assert all(torch.equal(tensor, best[name]) for name, tensor in load_file(newest / "ema.safetensors").items())


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


def test_the_last_running_mean_is_averaged_as_a_copy_in_memory(tmp_path, monkeypatch):
    """Validated weights are copies in memory: with the mean itself, on a GPU, they could not be averaged."""
    added, add = [], WeightSelection.add

    def watched(selection, weights):
        shared = {tensor.data_ptr() for tensor in selection.running.values()}
        added.append(shared & {tensor.data_ptr() for tensor in weights.values()})
        add(selection, weights)

    monkeypatch.setattr(WeightSelection, "add", watched)
    config = tiny.run_config(max_updates=5, validate_every=3, ema_decay=0.9, average_checkpoints=2)
    train(config, tmp_path, task=tiny.task(), quiet=True)
    assert added == [set(), set()]
