import pytest
import torch

from universal_transformer.registry import build
from universal_transformer.training.averages import Averager, RunningMean

from . import tiny


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_average_is_the_mean_of_the_last_few(count):
    averager = Averager(count)
    weights = [{"a": torch.randn(3), "b": torch.randn(2, 2)} for _ in range(5)]
    for added in weights:
        averager.add(added)
    average = averager.average()
    if count < 2:
        assert average is None
        return
    for name in ("a", "b"):
        expected = torch.stack([kept[name] for kept in weights[-count:]]).mean(0)
        torch.testing.assert_close(average[name], expected)
    again = Averager(count)
    again.load(averager.tensors())
    for name, value in again.average().items():
        assert torch.equal(value, average[name])


def test_a_running_mean_of_the_weights_is_that_of_a_naive_loop():
    model, mean, expected = build(tiny.task().configure(tiny.model_config())), RunningMean(0.9), None
    for update in range(1, 100):
        for tensor in model.tensors().values():
            tensor.detach().fill_(float(update))
        mean.add(model, update=update)
        decay = min(0.9, (1 + update) / (10 + update))
        expected = float(update) if expected is None else decay * expected + (1 - decay) * update
        assert mean.weights.keys() == model.tensors().keys()
        assert all(float(tensor.mean()) == pytest.approx(expected, rel=1e-4) for tensor in mean.weights.values())
