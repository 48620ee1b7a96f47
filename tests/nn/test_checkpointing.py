"""Computing a step again on the way back changes no gradient, draws the same dropout, and keeps one state a step."""

import copy

import pytest
import torch

from benchmarks.timing import peak_bytes
from configs import config_of
from small import WIDTH, go, right_padding, small_recurrence
from universal_transformer.models.depth import recurrence

CASES = {
    "fixed": {},
    "untied": {"tied": False, "layers_per_step": 2},
    "pre": {"norm": "pre", "transition": "separable_convolution"},
    "halting, masked": {"halting": True, "execution": "masked"},
    "halting, interpolated": {"halting": True, "execution": "masked", "output": "interpolate"},
    "halting, masked, two blocks": {"halting": True, "execution": "masked", "layers_per_step": 2},
    "halting, last": {"halting": True, "state": "evolving", "output": "final"},
    "halting, untied": {"halting": True, "tied": False},
    "halting, compact": {"halting": True},
    "halting, compact, two blocks": {"halting": True, "layers_per_step": 2},
    "halting, compact, pre": {"halting": True, "norm": "pre"},
}


def drop(module):
    """Dropout everywhere."""
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.3
        if hasattr(part, "num_heads"):
            part.dropout = 0.3
    return module.train()


@pytest.mark.cover(1)
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_bit_for_bit_the_same_with_dropout(name, decoder):
    module = drop(small_recurrence(decoder=decoder, cross_attention=decoder, max_steps=6, **CASES[name]))
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding((6, 3, 5, 1), 6)
    source = torch.randn(4, 3, WIDTH, dtype=torch.float64) if decoder else None
    found = []
    for checkpointed in (False, True):
        one = copy.deepcopy(module)
        one.checkpointed = checkpointed
        inputs = [None if x is None else x.clone().requires_grad_() for x in (states, source)]
        torch.manual_seed(5)
        output, trace = go(one, inputs[0], padding=padding, source=inputs[1])
        (output[~padding].sin().sum() + trace.ponder_cost).backward()
        after = torch.rand(())
        grads = [x.grad for x in (*one.parameters(), *inputs) if x is not None and x.grad is not None]
        found.append([output.detach(), trace.steps, after, *grads])
    assert len(found[0]) == len(found[1])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-13, atol=1e-13)


def states_a_step(*, checkpointed, **choices):
    """Peak memory of forward and backward that a further depth step costs, in units of the states of all positions."""
    width, batch, length, peaks = 64, 16, 32, []
    for max_steps in (3, 7):
        torch.manual_seed(0)
        config = config_of(
            architecture="classifier", width=width, filter_width=2 * width, num_heads=2, max_steps=max_steps,
            activation_checkpointing=checkpointed, dropout=0.0, halting_bias=-30.0, **choices,
        )  # fmt: skip
        module = recurrence(config, decoder=False)
        module.decoder = False
        states = torch.randn(batch, length, width, requires_grad=True)

        def work(module=module, states=states):
            output, trace = go(module, states)
            (output.square().sum() + trace.ponder_cost).backward()

        work()  # gradients of parameters are there before
        peaks.append(peak_bytes(work, device=states.device))
    return (peaks[1] - peaks[0]) / 4 / (4 * width * batch * length)


@pytest.mark.cover(1)
@pytest.mark.sample(4)
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    ("choices", "most"),
    [
        ({}, 1.05),
        ({"tied": False}, 1.05),
        ({"halting": True}, 1.25),
        ({"halting": True, "halting_output": "interpolate"}, 2.25),
        ({"halting": True, "layers_per_step": 2}, 2.25),
    ],
    ids=str,
)
def test_a_step_keeps_one_state(choices, most, norm):
    """A halting position keeps a few numbers beside its state, its output where that is interpolated, and what entered
    the later blocks of a step."""
    assert 0.9 < states_a_step(checkpointed=True, norm=norm, **choices) <= most
    assert states_a_step(checkpointed=False, norm=norm, **choices) > 8
