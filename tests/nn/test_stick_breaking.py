"""Stick-breaking halting: the naive loop, and the same compacted, cached and in training."""

import copy

import pytest
import torch

import oracles
from small import WIDTH, cache_for, context_of, go, left_padding, piecewise, right_padding, small_recurrence
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import CompactLoop, install
from universal_transformer.nn.recurrence import depth_loop
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.rules.stick_breaking import StickBreaking

LENGTHS = (6, 3, 5, 1)


@pytest.fixture(autouse=True)
def compact(monkeypatch):
    """Small batches are compacted too. What ran compact is counted."""
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(policy, "LEAST_SAVED", 0)
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    return ran


@torch.no_grad()
def breaking(**choices):
    """A unit whose logits of the first step have mean -1 and standard deviation 2: positions stop early and late."""
    module = small_recurrence(halting=True, rule="stick_breaking", bias=-100.0, **{"threshold": 0.9, **choices})
    states = torch.randn(16, 6, WIDTH, dtype=torch.float64)
    source = torch.randn(16, 3, WIDTH, dtype=torch.float64) if module.blocks[0].cross_attention else None
    read = module.halting.features(go(module, states, source=source, max_steps=1)[0]) @ module.halting.weight[0]
    module.halting.weight *= 2 / read.std()
    module.halting.bias.fill_(float(-1 - read.mean() * 2 / read.std()))
    return module


def batch(rows=4, length=6):
    return torch.randn(rows, length, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("decoder", "min_steps"), [(False, 1), (True, 1), (False, 2)])
@pytest.mark.parametrize("form", ["auto", "masked"])
def test_it_is_the_naive_loop(form, decoder, min_steps, norm, compact):
    module = breaking(max_steps=8, norm=norm, decoder=decoder, min_steps=min_steps, execution=form)
    states, padding = batch(), right_padding(LENGTHS, 6)
    with torch.no_grad():
        ours, trace = go(module, states, padding=padding)
    assert bool(compact) == (form == "auto")
    for row in range(len(LENGTHS)):
        real = ~padding[row]
        naive = oracles.breaking(module, list(states[row, real]), max_steps=8, threshold=0.9, min_steps=min_steps)
        assert trace.steps[row, real].tolist() == naive.steps
        assert naive.margin > 1e-5
        torch.testing.assert_close(ours[row, real], torch.stack(naive.states), atol=1e-5, rtol=0)
        torch.testing.assert_close(trace.remainder[row, real].tolist(), naive.remainder, atol=1e-5, rtol=0)
    torch.testing.assert_close(trace.weight.sum(0), (~padding).double())
    number = torch.arange(1.0, len(trace.weight) + 1).view(-1, 1, 1)
    torch.testing.assert_close(trace.ponder_cost, (trace.weight * number).sum() / (~padding).sum())
    assert len(trace.steps[~padding].unique()) > 1


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("decoder", [False, True])
def test_compact_training_is_masked_training(decoder, norm, compact):
    module = breaking(max_steps=9, norm=norm, decoder=decoder, cross_attention=decoder)
    states, source, padding = batch(), batch(length=3), right_padding(LENGTHS, 6)
    found = []
    for form in ("auto", "masked"):
        one, given = copy.deepcopy(module), states.clone().requires_grad_()
        install(one, form)
        output, trace = go(one, given, padding=padding, source=source if decoder else None)
        output = output.masked_fill(padding.unsqueeze(-1), 0.0)
        (output.sin().sum() + trace.ponder_cost).backward()
        gradients = [part.grad for part in one.parameters() if part.grad is not None]
        found.append([output.detach(), trace.steps, trace.weight.detach(), given.grad, *gradients])
    assert len(compact) == 1
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-10)


def test_gradients_are_those_of_finite_differences():
    module, states, padding = breaking(max_steps=4), batch(), right_padding(LENGTHS, 6)
    names = [name for name, _ in module.halting.named_parameters()]

    def loss(*parts):
        given = {f"halting.{name}": part for name, part in zip(names, parts, strict=True)}
        call = context_of(module, 6, padding=padding)
        output, trace = torch.func.functional_call(module, given, (states, call))
        return output.masked_fill(padding.unsqueeze(-1), 0.0).sin().sum() + trace.ponder_cost

    module.loop = depth_loop
    parameters = [part.detach().clone().requires_grad_() for part in module.halting.parameters()]
    assert torch.autograd.gradcheck(loss, parameters)


@pytest.mark.parametrize(
    "choices", [{}, {"norm": "pre"}, {"execution": "masked"}, {"norm": "pre", "execution": "masked"}]
)
def test_piece_by_piece_is_all_at_once(choices):
    module = breaking(max_steps=6, decoder=True, cross_attention=True, **choices)
    states, source, padding = batch(2, 7), batch(2, 4), left_padding((7, 5), 7)
    with torch.no_grad():
        whole, trace = go(module, states, padding=padding, source=source)
        cache = cache_for(module, batch=2, capacity=7)
        call = {"cache": cache, "padding": padding, "source": module.project_source(source)}
        ours, steps = piecewise(module, states, (3, 1, 2, 1), **call)
    torch.testing.assert_close(ours[~padding], whole[~padding])
    assert torch.equal(steps, trace.steps)
    assert len(steps[~padding].unique()) > 1


def test_it_starts_near_full_depth_and_equal_everywhere():
    unit = StickBreaking(WIDTH, HaltingConfig(rule="stick_breaking"), max_steps=8)
    unit.initialise()
    torch.testing.assert_close(unit.logit(torch.randn(3, WIDTH)).sigmoid(), torch.full((3,), 1 / 16))
