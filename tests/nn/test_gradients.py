"""Gradients against finite differences in float64, with respect to inputs and every parameter."""

import pytest
import torch
from torch.func import functional_call

from small import WIDTH, coordinates, go, right_padding, small_recurrence

CHOICES = [
    {},
    {"norm": "pre", "transition": "separable_convolution"},
    {"halting": True},
    {"halting": True, "state": "evolving", "output": "interpolate", "remainder_at_cap": False},
    {"halting": True, "layers_per_step": 2},
    {"halting": True, "residual": "state"},
    {"halting": True, "residual": "previous", "layers_per_step": 2},
    {"halting": True, "scope": "sequence", "output": "final", "norm": "pre"},
]


def margin(trace):
    """The distance of the decision that is nearest to the threshold."""
    if trace.probability is None:
        return torch.tensor(torch.inf)
    before = trace.weight.cumsum(0) - trace.weight  # h in front of each decision
    return (before + trace.probability - 0.99)[trace.weight > 0].abs().min()


def check(module, *, decoder):
    """``gradcheck`` of outputs and ponder cost, in random directions (``fast_mode``) over all parameters."""
    padding = right_padding((3, 2), 3)
    states, source = (torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True) for length in (3, 2))
    source = source if decoder else None
    with torch.no_grad():
        while margin(go(module, states, padding=padding, source=source)[1]) < 1e-3:
            states.normal_()  # there is no derivative where a decision stands on the threshold
    names, parameters = zip(*module.named_parameters(), strict=True)

    def run(states, source, *parameters):
        values = dict(zip(names, parameters, strict=True))

        class Call(torch.nn.Module):  # `project_source` and `forward` under the same parameters
            def __init__(self):
                super().__init__()
                self.module = module

            def forward(self):
                return go(self.module, states, padding=padding, source=source)

        output, trace = functional_call(Call(), {f"module.{name}": p for name, p in values.items()}, ())
        if trace.probability is None:
            return output[~padding]
        assert margin(trace) > 1e-4
        return output[~padding], trace.ponder_cost

    assert torch.autograd.gradcheck(run, (states, source, *parameters), fast_mode=True, atol=1e-5)


@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
def test_gradients_are_those_of_finite_differences(choices):
    check(small_recurrence(max_steps=3, execution="masked", **choices), decoder=False)


@pytest.mark.parametrize("choices", CHOICES[:-1], ids=lambda c: "-".join(map(str, c.values())))
def test_gradients_of_a_decoder_are_those_of_finite_differences(choices):
    module = small_recurrence(decoder=True, cross_attention=True, max_steps=3, execution="masked", **choices)
    check(module, decoder=True)


def test_learned_coordinates_learn():
    learned = coordinates(
        position="learned",
        step="learned",
        max_positions=4,
        max_steps=3,
    )
    for parameter in learned.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    module = small_recurrence(coordinates=learned, max_steps=3)
    check(module, decoder=False)
    go(module, torch.randn(1, 3, WIDTH, dtype=torch.float64))[0].sin().sum().backward()
    assert (learned.position.weight.grad[:3].abs().sum(1) > 0).all()
    assert (learned.position.weight.grad[3] == 0).all()
    assert (learned.step.weight.grad.abs().sum(1) > 0).all()


def test_ponder_cost_teaches_to_halt_sooner():
    """A step down its gradient raises the probabilities before the last step, hence lowers N + R."""
    module = small_recurrence(halting=True, max_steps=6)
    states, costs = torch.randn(4, 5, WIDTH, dtype=torch.float64), []
    optimizer = torch.optim.SGD(module.halting.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        cost = go(module, states)[1].ponder_cost
        cost.backward()
        optimizer.step()
        costs.append(cost.item())
    assert costs[-1] < costs[0] - 0.5
