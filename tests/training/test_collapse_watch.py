import pytest
import torch

from universal_transformer.nn.trace import Trace
from universal_transformer.training.watches import COLLAPSE_LOOKS, COLLAPSE_UPDATES, CollapseWatch


def trace(steps, *, halting=True):
    values = torch.as_tensor(steps, dtype=torch.float32)
    padding = values == 0
    probability = torch.zeros(1, *values.shape) if halting else None
    return Trace(values, torch.zeros_like(values), padding, torch.tensor(0.0), probability=probability)


def warnings_after(seen, *, looks):
    watch = CollapseWatch()
    found = (watch.inspect(seen, side="decoder", max_steps=8, updates=20) for _ in range(looks))
    return [text for text in found if text]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([[1, 1, 0], [1, 1, 1]], "after the first step"),
        ([[8, 8, 0], [8, 8, 8]], "to the cap"),
        ([[3, 3, 3, 0, 0]], "same step"),
    ],
)
def test_collapsed_halting_is_reported_once_and_only_after_long(steps, reason):
    looks = COLLAPSE_UPDATES // 20
    assert warnings_after(trace(steps), looks=looks - 1) == []
    (text,) = warnings_after(trace(steps), looks=3 * looks)
    assert reason in text
    assert "all decoder positions" in text


@pytest.mark.parametrize("seen", [trace([[1, 2, 5, 0]]), trace([[8, 8]], halting=False), None])
def test_halting_that_decides_is_not(seen):
    assert warnings_after(seen, looks=COLLAPSE_UPDATES) == []


def test_one_look_is_not_long_however_many_updates_it_stands_for():
    watch = CollapseWatch()
    found = [
        watch.inspect(trace([[1, 1]]), side="encoder", max_steps=8, updates=COLLAPSE_UPDATES)
        for _ in range(COLLAPSE_LOOKS)
    ]
    assert found[:-1] == [None] * (COLLAPSE_LOOKS - 1)
    assert "after the first step" in found[-1]
    assert COLLAPSE_LOOKS > 1


def test_a_single_step_is_no_collapse():
    watch = CollapseWatch()
    looks = [watch.inspect(trace([[1, 1]]), side="encoder", max_steps=1, updates=COLLAPSE_UPDATES) for _ in range(5)]
    assert not any(looks)


def test_a_short_recovery_starts_the_count_anew():
    watch = CollapseWatch()
    for _ in range(10):
        for steps, updates in (([[1, 1]], COLLAPSE_UPDATES - 1), ([[1, 4]], 1)):
            assert watch.inspect(trace(steps), side="encoder", max_steps=8, updates=updates) is None
