"""Updates that are measured: what they leave unchanged, and that a part of the rows is enough."""

import statistics

import pytest
import torch

from configs import config_of
from universal_transformer.data.example import Example
from universal_transformer.registry import build
from universal_transformer.training import dry_run
from universal_transformer.training.dry_run import MeasuredUpdates
from universal_transformer.training.run_config import TrainingConfig

EXAMPLES = [Example(source=(5,) * (3 + number % 4), target=(6, 7, 2)) for number in range(40)]
BATCHES = [list(range(12)), list(range(12, 40))]


def updates(**fields):
    torch.manual_seed(0)
    model = build(config_of(width=16, filter_width=16, num_heads=2, max_steps=5, vocabulary_size=11, **fields))
    training = TrainingConfig(max_updates=1, weight_decay=0.1, optimizer="adamw")
    return MeasuredUpdates(model, EXAMPLES, training=training, device=torch.device("cpu"))


@pytest.mark.parametrize("halting", [False, True])
def test_no_weight_is_changed(halting):
    measured = updates(halting=halting)
    before = {name: tensor.clone() for name, tensor in measured.model.state_dict().items()}
    cost = measured.cost(BATCHES, largest=BATCHES[1:])
    for name, tensor in measured.model.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    assert cost.seconds > 0
    assert cost.memory > cost.activations >= 0


def test_without_halting_all_steps_are_made():
    measured = updates(halting=True, halting_bias=-1.0)
    assert measured.cost(BATCHES, largest=[]).steps < 5
    measured.never_halt()
    assert measured.cost(BATCHES, largest=[]).steps == 5
    assert updates().cost(BATCHES, largest=[]).steps == 5


@pytest.mark.parametrize("longest", [0.1, 1.0, 1e9])
def test_a_part_of_the_rows_is_enough_where_time_grows_with_them(longest, monkeypatch):
    """A clock on which each row of a batch takes a second, and the optimizer nothing."""
    measured, rows = updates(), []
    collate = dry_run.collate
    monkeypatch.setattr(dry_run, "collate", lambda given, **k: rows.append(len(given)) or collate(given, **k))

    def seconds_of(side, **_):
        rows.append(0)
        side()
        return float(rows[-1])

    monkeypatch.setattr(dry_run, "seconds_of", seconds_of)
    monkeypatch.setattr(dry_run, "LONGEST", longest)
    cost = measured.cost(BATCHES, largest=BATCHES)
    assert cost.seconds == pytest.approx(statistics.mean(map(len, BATCHES)))
    assert max(rows) == (28 if longest == 1e9 else dry_run.PROBE_ROWS)
