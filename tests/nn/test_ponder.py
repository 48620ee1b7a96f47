"""The rule that takes a probability for that of stopping now, if no earlier step was the last."""

import pytest
import torch

from small import WIDTH, go, right_padding, small_recurrence
from universal_transformer.nn.halting import ponder


def test_the_weights_are_a_distribution_over_the_steps():
    p, h, weights = torch.rand(5, 100, dtype=torch.float64), torch.zeros(100, dtype=torch.float64), []
    for step in range(5):
        h, weight, halts = ponder(h, p[step], threshold=1.0, stop=step == 4)
        before = (1 - p[:step]).prod(0)
        torch.testing.assert_close(weight, before if step == 4 else p[step] * before)
        assert bool(halts.all()) == (step == 4)
        weights.append(weight)
    torch.testing.assert_close(torch.stack(weights).sum(0), torch.ones(100, dtype=torch.float64))


def test_a_position_stops_when_it_has_probably_stopped():
    p, h = torch.tensor([0.3, 0.3, 0.3]), torch.zeros(3)
    for expected in (False, True):  # 1 - 0.7, then 1 - 0.7²
        h, _, halts = ponder(h, p, threshold=0.5, stop=False)
        assert halts.tolist() == [expected] * 3


def test_a_probability_of_one_stops_nothing_where_no_threshold_is_exceeded():
    h, _, halts = ponder(torch.zeros(1), torch.ones(1), threshold=1.0, stop=False)
    assert not halts
    assert h < 1


@torch.no_grad()
def spread_logits(module, states):
    """Give the unit logits of mean -0.5 and standard deviation 2 on ``states``: positions then halt early and late."""
    unit = module.unit
    unit.weight *= 2 / (states @ unit.weight[0]).std()
    unit.bias.fill_(-0.5 - (states @ unit.weight[0]).mean())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("decoder", [False, True])
def test_it_reads_the_state_after_the_step_and_leaving_out_halted_positions_changes_nothing(norm, decoder):
    choices = {"halting": True, "rule": "ponder", "output": "final", "threshold": 0.9, "norm": norm}
    masked = small_recurrence(execution="masked", decoder=decoder, **choices)
    compact = small_recurrence(execution="auto", decoder=decoder, **choices)
    states, padding = torch.randn(40, 8, WIDTH, dtype=torch.float64), right_padding([8, 5] * 20, 8)
    spread_logits(masked, go(masked, states, padding=padding, max_steps=1)[0][~padding])
    compact.load_state_dict(masked.state_dict())
    output, trace = go(masked, states, padding=padding)
    assert len(trace.steps[~padding].unique()) > 2, "no position halts before another: nothing is tested"
    other, same = go(compact, states, padding=padding)
    torch.testing.assert_close(other[~padding], output[~padding], rtol=0, atol=1e-10)
    torch.testing.assert_close(same.steps, trace.steps)
    first, _ = go(masked, states, padding=padding, max_steps=1)
    closed = masked.unit.probability(first)  # the output of one step is what the unit read after it
    torch.testing.assert_close(trace.probability[0][~padding], closed[~padding])
