"""PonderNet: the distribution over the last step, its KL term, and how positions stop in inference."""

import copy
import math

import pytest
import torch

import oracles
from small import WIDTH, cache_for, context, context_of, go, piecewise, right_padding, small_recurrence
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import install
from universal_transformer.nn.context import Depth
from universal_transformer.nn.halting import FixedDepth, Step
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.rules.ponder import PonderNet, log_distribution, log_prior

LENGTHS = (5, 3, 1)


def pondering(*, quantile=0.5, bias=-1.5, **choices):
    module = small_recurrence(halting=True, rule="ponder", output="final", bias=bias, **choices)
    module.trained_depth = module.trained_depth._replace(threshold=quantile)
    return module


def batch(rows=3, length=5):
    return torch.randn(rows, length, WIDTH, dtype=torch.float64)


def test_the_distribution_is_the_product_and_sums_to_one():
    logits = 3 * torch.randn(6, 2, 4, dtype=torch.float64)
    found = log_distribution(logits).exp()
    torch.testing.assert_close(found.sum(0), torch.ones(2, 4, dtype=torch.float64))
    for row in range(2):
        for i in range(4):
            weights, _ = oracles.last_step(logits[:, row, i].sigmoid().tolist())
            assert found[:, row, i].tolist() == pytest.approx(weights, abs=1e-12)
    certain = torch.tensor([500.0, -500.0, 500.0], requires_grad=True)
    log_distribution(certain)[1].backward()
    assert bool(certain.grad.isfinite().all())


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_priors_sum_to_one(steps):
    geometric = [math.exp(g) for g in log_prior(steps, config=HaltingConfig(prior_steps=4.0), max_steps=7)]
    assert sum(geometric) == pytest.approx(1)
    assert geometric[:-1] == pytest.approx([0.25 * 0.75**t for t in range(steps - 1)])
    uniform = log_prior(steps, config=HaltingConfig(prior="uniform"), max_steps=7)
    assert uniform == pytest.approx([-math.log(steps)] * steps)


@pytest.mark.parametrize("steps", [7, 3])
def test_it_starts_at_the_prior_with_no_divergence(steps):
    """With fewer steps too: the rate is that of the configured cap."""
    module = pondering(max_steps=7)
    unit = PonderNet(WIDTH, HaltingConfig(rule="ponder", output="final"), max_steps=7).double()
    unit.initialise()
    module.halting = unit.train()
    _, trace = go(module, batch(), max_steps=steps)
    assert trace.ponder_cost.item() == pytest.approx(0, abs=1e-12)
    assert unit.bias.item() == pytest.approx(math.log(0.25 / 0.75))


@pytest.mark.parametrize("prior", [{"prior": "uniform"}, {"prior_steps": 3.0}])
@pytest.mark.parametrize(("scope", "min_steps"), [("position", 1), ("sequence", 1), ("position", 3)])
def test_in_training_all_steps_are_made_and_the_cost_is_the_divergence(scope, min_steps, prior):
    module = pondering(max_steps=6, scope=scope, min_steps=min_steps, **prior).train()
    states, padding = batch(), right_padding(LENGTHS, 5)
    output, trace = go(module, states, padding=padding)
    fixed = copy.deepcopy(module)
    fixed.halting = FixedDepth()
    torch.testing.assert_close(output[~padding], go(fixed, states, padding=padding)[0][~padding])
    assert (trace.steps[~padding] == 6).all()
    torch.testing.assert_close(trace.weight.sum(0), (~padding).double())
    costs = []
    for row, length in enumerate(LENGTHS):
        for i in range(1 if scope == "sequence" else length):
            weights, _ = oracles.last_step(trace.probability[:, row, i].tolist())
            assert trace.weight[:, row, i].tolist() == pytest.approx(weights, abs=1e-12)
            made = weights[min_steps - 1 :]
            rate = 1 / 3
            goal = [rate * (1 - rate) ** t for t in range(len(made) - 1)]
            goal = [1 / len(made)] * len(made) if "prior" in prior else [*goal, 1 - sum(goal)]
            costs.append(sum(p * math.log(p / g) for p, g in zip(made, goal, strict=True)))
    assert trace.ponder_cost.item() == pytest.approx(sum(costs) / len(costs))


@pytest.mark.parametrize("scope", ["position", "sequence"])
def test_gradients_are_those_of_finite_differences(scope):
    module = pondering(max_steps=4, scope=scope).train()
    states, padding = batch(), right_padding(LENGTHS, 5)

    def loss(weight, bias):
        given = {"halting.weight": weight, "halting.bias": bias}
        call = context_of(module, 5, padding=padding)
        _, trace = torch.func.functional_call(module, given, (states, call))
        return (trace.weight * torch.arange(4.0).view(-1, 1, 1).sin()).sum() + trace.ponder_cost

    parameters = [part.detach().clone().requires_grad_() for part in (module.halting.weight, module.halting.bias)]
    assert torch.autograd.gradcheck(loss, parameters)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("decoder", "min_steps"), [(False, 1), (True, 1), (False, 2)])
def test_in_inference_a_position_stops_at_the_quantile(norm, decoder, min_steps, monkeypatch):
    monkeypatch.setattr(policy, "LEAST_SAVED", 0)
    module = pondering(max_steps=8, norm=norm, decoder=decoder, min_steps=min_steps, bias=-2.5)
    states, padding = batch(), right_padding(LENGTHS, 5)
    found = []
    for form in ("auto", "masked"):
        install(module, form)
        with torch.no_grad():
            found.append(go(module, states, padding=padding))
        ours, trace = found[-1]
        for row in range(len(LENGTHS)):
            real = ~padding[row]
            naive = oracles.pondering(module, list(states[row, real]), max_steps=8, quantile=0.5, min_steps=min_steps)
            assert trace.steps[row, real].tolist() == naive.steps
            assert naive.margin > 1e-5
            torch.testing.assert_close(ours[row, real], torch.stack(naive.states), atol=1e-5, rtol=0)
            torch.testing.assert_close(trace.remainder[row, real].tolist(), naive.remainder, atol=1e-5, rtol=0)
    (one, first), (two, second) = found
    torch.testing.assert_close(one[~padding], two[~padding], atol=1e-10, rtol=1e-10)
    assert torch.equal(first.steps, second.steps)
    assert len(first.steps[~padding].unique()) > 1


def test_cached_is_uncached():
    module, states = pondering(max_steps=6, decoder=True), batch(2, 7)
    whole, trace = go(module, states)
    with torch.no_grad():
        ours, steps = piecewise(module, states, (3, 1, 3), cache=cache_for(module, batch=2, capacity=7))
    torch.testing.assert_close(ours, whole)
    assert torch.equal(steps, trace.steps)
    assert len(steps.unique()) > 1


class Given(PonderNet):
    """The rule of given probabilities: its states are these."""

    def probability(self, was, step):
        return step.timed.squeeze(-1), ()


def steps_of(p, *, threshold, max_steps):
    """The progress after each step with the probabilities ``p[step]``."""
    rule = Given(1, HaltingConfig(), max_steps=max_steps).eval()
    given = p.unsqueeze(-1)
    now, call = rule.start(given[0], None), context(depth=Depth(rule, max_steps, threshold=threshold))
    for step in range(len(p)):
        now = rule.update(now, Step(given[step], given[step], step, call, lambda x: x))
        yield now


def test_the_weights_are_a_distribution_over_the_steps():
    p, weights = torch.rand(5, 1, 100, dtype=torch.float64), []
    for step, now in enumerate(steps_of(p, threshold=1.0, max_steps=5)):
        before = (1 - p[:step]).prod(0)
        torch.testing.assert_close(now.weight, before if step == 4 else p[step] * before)
        assert bool((~now.running).all()) == (step == 4)
        weights.append(now.weight)
    torch.testing.assert_close(torch.stack(weights).sum(0), torch.ones(1, 100, dtype=torch.float64))


def test_a_position_stops_when_it_has_probably_stopped():
    p = torch.full((2, 1, 3), 0.3)
    for expected, now in zip((False, True), steps_of(p, threshold=0.5, max_steps=9), strict=True):  # 1 - 0.7, 1 - 0.7²
        assert (~now.running).tolist() == [[expected] * 3]


def test_a_probability_of_one_stops_nothing_where_no_threshold_is_exceeded():
    (now,) = steps_of(torch.ones(1, 1, 1), threshold=1.0, max_steps=9)
    assert now.running
    assert now.halted < 1


@torch.no_grad()
def spread_logits(module, states):
    """Give the unit logits of mean -0.5 and standard deviation 2 on ``states``: positions then halt early and late."""
    unit = module.halting
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
    closed = masked.halting.logit(first).sigmoid()  # the output of one step is what the unit read after it
    torch.testing.assert_close(trace.probability[0][~padding], closed[~padding])
