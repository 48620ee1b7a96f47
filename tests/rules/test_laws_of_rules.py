"""What every halting rule and every exit must be: a new member of the registries is tested by being registered."""

import copy

import pytest
import torch
from torch import nn

from small import WIDTH, cache_for, go, left_padding, piecewise, right_padding, small_recurrence
from universal_transformer.execution.compaction import CompactLoop, install
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.rules import EXITS, HALTING_RULES, Exit, stops_at

MEMBERS = [*HALTING_RULES, *EXITS]
LENGTHS = (6, 3, 5, 1)
STEPS = 7
BIASES = (0.0, -1.0, 1.0, -2.0, 2.0, -3.0, 3.0, -5.0, 5.0)
THRESHOLDS = (0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2, 0.1, 0.05, 0.02, 0.9, 0.95, 0.01)


@pytest.fixture
def runs(monkeypatch):
    """What ran compact."""
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    return ran


def batch(rows=4, length=6):
    return torch.randn(rows, length, WIDTH, dtype=torch.float64)


def differs(module, states, exit, padding):
    """Whether some positions stop before others."""
    with torch.no_grad():
        _, trace = go(module, states, padding=padding, exit=exit)
    return len(trace.steps[~padding].unique()) > 1


@pytest.fixture(params=MEMBERS)
def make(request):
    """A function that makes a recurrence and the exit of its calls, with which positions stop at different steps."""

    def made(states, padding, **choices):
        if request.param in EXITS:
            module, head = small_recurrence(max_steps=STEPS, **choices), nn.Linear(WIDTH, 4).double()
            nn.init.normal_(head.weight, std=0.5)
            for threshold in THRESHOLDS:
                exit = Exit(request.param, threshold).rule(threshold, head)
                if differs(module, states, exit, padding):
                    return module, exit
        else:
            module = small_recurrence(halting=True, rule=request.param, bias=-1.0, max_steps=STEPS, **choices)
            threshold = stops_at(HaltingConfig(rule=request.param))
            module.trained_depth = module.trained_depth._replace(threshold=threshold)
            for bias in BIASES:
                if (own := getattr(module.halting, "bias", None)) is not None:
                    nn.init.constant_(own, bias)
                if differs(module, states, None, padding):
                    return module, None
        pytest.fail("all positions stop together: nothing is tested")

    return made


@pytest.mark.parametrize("learn", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
def test_leaving_out_halted_positions_changes_nothing(make, decoder, norm, learn, runs):
    states, padding, found = batch(), right_padding(LENGTHS, 6), []
    module, exit = make(states, padding, decoder=decoder, norm=norm)
    module.train(learn)
    runs.clear()
    for form in ("auto", "masked"):
        one, given = copy.deepcopy(module), states.clone().requires_grad_(learn)
        install(one, form)
        with torch.set_grad_enabled(learn):
            output, trace = go(one, given, padding=padding, exit=exit)
        output = output.masked_fill(padding.unsqueeze(-1), 0.0)
        parts = [output.detach(), trace.steps, trace.remainder.detach(), trace.weight.detach()]
        if learn:
            (output.sin().sum() + trace.ponder_cost).backward()
            parts += [given.grad, *(each.grad for each in one.parameters() if each.grad is not None)]
        found.append(parts)
    assert bool(runs) == (exit is not None or module.halting.obstacle is None)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("execution", ["auto", "masked"])
def test_token_by_token_is_all_at_once(make, execution):
    states, padding = batch(2, 7), left_padding((7, 5), 7)
    module, exit = make(states, padding, decoder=True, execution=execution)
    whole, trace = go(module, states, padding=padding, exit=exit)
    cache = cache_for(module, batch=2, capacity=7)
    ours, steps = piecewise(module, states, (3, 1, 2, 1), cache=cache, padding=padding, exit=exit)
    torch.testing.assert_close(ours[~padding], whole[~padding])
    assert torch.equal(steps, trace.steps)


@pytest.mark.parametrize("execution", ["auto", "masked"])
def test_what_stands_at_padding_and_how_much_of_it_changes_nothing(make, execution):
    states, padding = batch(), right_padding(LENGTHS, 6)
    module, exit = make(states, padding, execution=execution)
    noisy = torch.where(padding.unsqueeze(-1), 100.0 * torch.randn_like(states), states)
    longer = torch.cat((states, batch(length=3)), dim=1)
    whole, trace = go(module, states, padding=padding, exit=exit)
    assert (trace.steps[padding] == 0).all()
    for given in (noisy, longer):
        length = given.shape[1]
        ours, other = go(module, given, padding=right_padding(LENGTHS, length), exit=exit)
        torch.testing.assert_close(ours[:, :6][~padding], whole[~padding])
        assert torch.equal(other.steps[:, :6], trace.steps)
        torch.testing.assert_close(other.ponder_cost, trace.ponder_cost)


@pytest.mark.parametrize("execution", ["auto", "masked"])
def test_the_order_of_sequences_does_not_matter(make, execution):
    states, padding, order = batch(), right_padding(LENGTHS, 6), torch.tensor([2, 0, 3, 1])
    module, exit = make(states, padding, execution=execution)
    ours, trace = go(module, states, padding=padding, exit=exit)
    other, moved = go(module, states[order], padding=padding[order], exit=exit)
    torch.testing.assert_close(ours[order][~padding[order]], other[~padding[order]])
    assert torch.equal(trace.steps[order], moved.steps)


@pytest.mark.parametrize("execution", ["auto", "masked"])
def test_no_position_stops_before_the_least_or_after_the_most_steps(make, execution):
    states, padding = batch(), right_padding(LENGTHS, 6)
    module, exit = make(states, padding, min_steps=3, execution=execution)
    _, trace = go(module, states, padding=padding, exit=exit)
    assert trace.steps[~padding].min() >= 3
    assert trace.steps.max() <= STEPS
    for most in (1, 3):
        _, trace = go(module, states, padding=padding, exit=exit, max_steps=most)
        assert (trace.steps[~padding] == most).all()
        assert len(trace.weight) == most


@pytest.mark.parametrize("execution", ["auto", "masked"])
@pytest.mark.parametrize("train", [False, True])
def test_the_weights_of_a_position_sum_to_one(make, train, execution):
    states, padding = batch(), right_padding(LENGTHS, 6)
    module, exit = make(states, padding, execution=execution)
    _, trace = go(module.train(train), states, padding=padding, exit=exit)
    torch.testing.assert_close(trace.weight.sum(0), (~padding).to(trace.weight.dtype))
    assert (trace.weight >= 0).all()
    made = torch.arange(len(trace.weight)).view(-1, 1, 1)
    assert (trace.weight[(made >= trace.steps).expand_as(trace.weight)] == 0).all()
