"""Leaving out halted positions waits until what it saves is worth its operations, and changes no number."""

import pytest
import torch

from configs import config_of
from small import WIDTH, go, small_recurrence
from small_models import small
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import CompactLoop
from universal_transformer.execution.stream import stream_obstacle
from universal_transformer.models.universal import Classifier


def test_little_to_save_stays_masked(monkeypatch):
    config = config_of(
        architecture="classifier", vocabulary_size=9, num_classes=3, width=8, filter_width=8, num_heads=2,
        max_steps=5, halting=True, halting_bias=-0.5,
    )  # fmt: skip
    model = Classifier(config).eval()
    with torch.no_grad():
        model.source.recurrence.halting.weight.mul_(4.0)
    ran = []
    run = CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    source, results = torch.arange(3, 9).expand(4, -1), []
    for least, expected in ((10**12, 0), (0, 1)):
        monkeypatch.setattr(policy, "LEAST_SAVED", least)
        with torch.no_grad():
            results.append(model(source).logits)
        assert len(ran) == expected
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(("norm", "runs"), [("post", 1), ("pre", 0)])
def test_few_halted_stay_with_norms_in_front(norm, runs, monkeypatch):
    """One position of ten halts: it is left out where that costs nothing, not where it differs at every step."""
    module = small_recurrence(norm=norm, halting=True, max_steps=4, remainder_at_cap=False).eval()
    states = torch.zeros(1, 10, WIDTH, dtype=torch.float64)
    monkeypatch.setattr(policy, "LEAST_SAVED", 0)
    chosen = torch.full((1, 10), 1e-3, dtype=torch.float64)
    chosen[0, 3] = 1.0
    computed = module.halting.probability

    def probability(was, step):
        return (chosen, ()) if was.states.dim() == 3 else computed(was, step)

    monkeypatch.setattr(module.halting, "probability", probability)
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    with torch.no_grad():
        go(module, states)
    assert len(ran) == runs


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"step.residual": "state"}, 'step.residual="state"'),
        ({"step.residual": "previous"}, 'step.residual="previous"'),
        ({"attention.scale": "width"}, 'attention.scale="width"'),
        ({}, None),
    ],
)
def test_equations_as_printed_are_computed_for_all_positions(changes, reason):
    recurrence = small(architecture="language_model", halting=True, **changes).target.recurrence
    for obstacle in (policy.row_obstacle(recurrence, recurrence.halting), stream_obstacle(recurrence)):
        assert obstacle is None if reason is None else reason in obstacle
