"""Losses that read what a model predicts after every step, against naive loops."""

import math

import pytest
import torch

from configs import with_fields
from universal_transformer.errors import UserError
from universal_transformer.nn.trace import Trace
from universal_transformer.training.objective import (
    MARGIN,
    cross_entropies,
    deep_supervision,
    stop_loss,
    stop_targets,
)

from . import tiny

NO_COST = torch.tensor(0.0)


def test_cross_entropies_are_those_of_each_step_and_row():
    logits, target = torch.randn(3, 2, 4, 5), torch.randint(1, 5, (2, 4))
    target[1, 2:] = 0
    found = cross_entropies(logits, target, ignored=0).view(3, 2, 4)
    for step in range(3):
        for row in range(2):
            for place in range(4):
                nats = -float(logits[step, row, place].log_softmax(-1)[target[row, place]])
                expected = 0.0 if target[row, place] == 0 else nats
                assert float(found[step, row, place]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("by_sequence", [False, True])
def test_deep_supervision_weighs_the_steps_that_each_row_made(by_sequence):
    each = torch.tensor([[4.0, 5.0, 0.0], [2.0, 7.0, 0.0], [1.0, 9.0, 0.0]])
    steps = torch.tensor([[1.0, 3.0], [1.0, 1.0], [2.0, 0.0]]) if by_sequence else torch.tensor([[3.0, 1.0, 0.0]])
    trace = Trace(steps, torch.zeros_like(steps), None, NO_COST)
    assert float(deep_supervision(each, trace, weights="mean")) == pytest.approx(7 / 3 + 5)
    assert float(deep_supervision(each, trace, weights="increasing")) == pytest.approx((4 + 4 + 3) / 6 + 5)


def naive_stop(each: list[float], step: int) -> bool:
    """Whether no step after `step` is better."""
    return all(later >= each[step] - MARGIN for later in each[step + 1 :])


def test_to_stop_is_right_where_no_later_step_predicts_better():
    each = torch.rand(6, 50) * 0.03
    found = stop_targets(each)
    expected = [[naive_stop(row.tolist(), step) for row in each.T] for step in range(5)]
    assert found.tolist() == expected
    assert 0.2 < found.float().mean() < 0.9


@pytest.mark.parametrize("by_sequence", [False, True])
@pytest.mark.parametrize("min_steps", [1, 3])
def test_the_loss_of_stopping_is_the_mean_over_real_rows_and_steps_that_are_asked(by_sequence, min_steps):
    rows, positions, steps = 3, 4, 5
    padding = torch.zeros(rows, positions, dtype=torch.bool)
    padding[1, :2] = True
    p = torch.rand(steps, rows, 1).expand(-1, -1, positions) if by_sequence else torch.rand(steps, rows, positions)
    p = p.masked_fill(padding, 0.0)
    real = torch.tensor([True, True, False]) if by_sequence else ~padding.flatten()
    each = torch.rand(steps, len(real))
    zero = torch.zeros(rows, positions)
    loss = stop_loss(each, Trace(zero, zero, padding, NO_COST, probability=p), real=real, min_steps=min_steps)
    flat = p[..., -1] if by_sequence else p.flatten(1)
    terms = [
        -math.log(float(flat[step, row] if naive_stop(each[:, row].tolist(), step) else 1 - flat[step, row]))
        for step in range(min_steps - 1, steps - 1)
        for row in range(len(real))
        if real[row]
    ]
    assert float(loss) == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_the_gradient_of_the_loss_of_stopping_is_that_of_finite_differences():
    logits = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    each, zero = torch.rand(4, 6, dtype=torch.float64), torch.zeros(2, 3)

    def loss(z):
        return stop_loss(
            each, Trace(zero, zero, None, NO_COST, probability=z.sigmoid()), real=torch.ones(6, dtype=torch.bool)
        )

    assert torch.autograd.gradcheck(loss, (logits,))


@pytest.mark.parametrize("weights", ["mean", "increasing"])
def test_the_gradient_of_deep_supervision_is_that_of_finite_differences(weights):
    logits = torch.randn(4, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    steps = torch.tensor([[1.0, 4.0, 2.0], [3.0, 0.0, 4.0]])
    target, trace = torch.tensor([[1, 4, 2], [3, 0, 1]]), Trace(steps, torch.zeros_like(steps), None, NO_COST)

    def loss(z):
        return deep_supervision(cross_entropies(z, target, ignored=0), trace, weights=weights)

    assert torch.autograd.gradcheck(loss, (logits,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plain_layers_after": 1}, "plain layers follow the recurrence"),
        ({"outputs.kind": "frames", "outputs.features": 4}, "this model writes frames, which have no probabilities"),
        ({"halting.side": "decoder", "halting.rule": "ponder"}, "the rule ponder weighs the loss of each step"),
    ],
)
def test_models_without_a_loss_after_each_step_are_refused_before_training(changes, message):
    model = with_fields(tiny.model_config(), **changes)
    with pytest.raises(UserError, match=f"^training.step_loss='mean': {message}"):
        tiny.run_config(model, step_loss="mean")
