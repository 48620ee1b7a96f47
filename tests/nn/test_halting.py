import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from configs import config_of
from small import context, go, right_padding, small_recurrence
from small_models import SIZES
from universal_transformer.errors import UserError
from universal_transformer.models.call import DepthOptions
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.context import Depth
from universal_transformer.nn.halting import ACT, Accumulating, FixedDepth, Step
from universal_transformer.nn.step_config import HaltingConfig
from universal_transformer.registry import build

PROBABILITIES = st.integers(1, 6).flatmap(
    lambda cap: st.lists(
        st.lists(st.floats(0.0, 1.0), min_size=cap, max_size=cap), min_size=1, max_size=5
    )  # [position][step]
)
THRESHOLDS = st.one_of(st.sampled_from((0.5, 0.99, 1.0)), st.floats(0.01, 1.0))


class Given(Accumulating):
    """The rule of given probabilities: the timed states are these."""

    def probability(self, was, step):
        return step.timed[..., 0], ()


def given_steps(p, *, threshold, remainder_at_cap=True, padding=None, output="mean", states=None):
    """The rule after the steps with the probabilities ``p[step, 1, position]``: the last progress, and the weights."""
    rule = Given()
    rule.halts_at_cap, rule.output_rule = remainder_at_cap, output
    states = p.detach().unsqueeze(-1) if states is None else states
    now, weights = rule.start(states[0], padding), []
    call = context(depth=Depth(rule, len(p), threshold=threshold))
    for step in range(len(p)):
        timed = p[step].unsqueeze(-1).expand_as(states[step])
        made = rule.update(now, Step(timed, states[step], step, call, lambda x: x))
        now = rule.combine(now, made)
        weights.append(now.weight)
    return now, torch.stack(weights)


def run(probabilities, **choices):
    """The rule over ``[position][step]``: the last progress and the weights ``[step, 1, position]``."""
    return given_steps(torch.tensor(probabilities, dtype=torch.float64).T.unsqueeze(1), **choices)


def ponder_cost(steps, remainder, *, padding):
    last = Given().start(torch.zeros(*steps.shape, 1), None)
    return Given().cost(last._replace(steps=steps, remainder=remainder), padding=padding, min_steps=1)


@pytest.mark.claim("appendix B", "listing 2", "tutorial halting")
@given(probabilities=PROBABILITIES, threshold=THRESHOLDS, remainder_at_cap=st.booleans())
def test_advance_is_the_naive_loop_to_the_last_bit(probabilities, threshold, remainder_at_cap):
    halting, weights = run(probabilities, threshold=threshold, remainder_at_cap=remainder_at_cap)
    for i, p in enumerate(probabilities):
        naive = oracles.advance(p, threshold=threshold, remainder_at_cap=remainder_at_cap)
        assert (weights[:, 0, i].tolist(), halting.steps[0, i], halting.remainder[0, i]) == naive


def test_wrong_rules_would_be_noticed():
    p = [[0.4, 0.3, 0.2]]
    capped, weights = run(p, threshold=0.99, remainder_at_cap=True)
    open_ended, _ = run(p, threshold=0.99, remainder_at_cap=False)
    early, _ = run(p, threshold=0.6, remainder_at_cap=True)
    assert weights.flatten().tolist() == pytest.approx([0.4, 0.3, 0.3])
    assert (capped.remainder.item(), open_ended.remainder.item()) == (pytest.approx(0.3), 0.0)
    assert (capped.steps.item(), early.steps.item()) == (3, 2)
    assert early.remainder.item() == pytest.approx(0.6)
    exact, _ = run([[0.25, 0.25, 0.25]], threshold=0.5, remainder_at_cap=True)
    assert exact.steps.item() == 3  # h + p = threshold goes on: the rule says above
    certain, _ = run([[0.25, 1.0]], threshold=1.0, remainder_at_cap=False)
    assert certain.remainder.item() == 0.75  # but a sum of 1 leaves no weight for a further step


@given(probabilities=PROBABILITIES, threshold=THRESHOLDS, remainder_at_cap=st.booleans())
def test_weights_sum_to_one_for_whatever_halts(probabilities, threshold, remainder_at_cap):
    halting, weights = run(probabilities, threshold=threshold, remainder_at_cap=remainder_at_cap)
    total = weights.sum(0)[0]
    for i, p in enumerate(probabilities):
        if remainder_at_cap or halting.halted[0, i] == 1.0:
            assert total[i].item() == pytest.approx(1.0, abs=1e-12)
            assert not halting.running[0, i]
        else:
            assert halting.running[0, i]
            assert total[i].item() == pytest.approx(sum(p), abs=1e-12)
            assert total[i] <= threshold
    assert (weights >= 0).all()


@given(probabilities=PROBABILITIES, threshold=THRESHOLDS)
def test_padding_never_runs(probabilities, threshold):
    padding = torch.zeros(1, len(probabilities), dtype=torch.bool)
    padding[0, -1] = True
    halting, weights = run(probabilities, threshold=threshold, remainder_at_cap=True, padding=padding)
    assert halting.steps[0, -1] == 0
    assert halting.remainder[0, -1] == 0
    assert (weights[:, 0, -1] == 0).all()
    assert not halting.running[0, -1]
    assert (halting.steps[0, :-1] >= 1).all()


@given(probabilities=PROBABILITIES, threshold=st.sampled_from((0.37, 0.713, 0.99)))
def test_gradient_of_the_ponder_cost_flows_through_the_remainder_alone(probabilities, threshold):
    p = torch.tensor(probabilities, dtype=torch.float64).T.unsqueeze(1).requires_grad_()
    halting, _ = given_steps(p, threshold=threshold)
    assert not halting.steps.requires_grad
    cost = ponder_cost(halting.steps, halting.remainder, padding=None)
    (gradient,) = torch.autograd.grad(cost, p, allow_unused=True) if cost.requires_grad else (None,)
    for i, row in enumerate(probabilities):
        _, count, _ = oracles.advance(row, threshold=threshold, remainder_at_cap=True)
        for step in range(len(row)):  # R = 1 - sum of the p before the last step made
            wanted = -1.0 / len(probabilities) if step < count - 1 else 0.0
            assert (0.0 if gradient is None else gradient[step, 0, i].item()) == pytest.approx(wanted)


@pytest.mark.claim("appendix B", "listing 2")
@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=4), threshold=THRESHOLDS, cap=st.booleans())
def test_outputs_follow_their_rules(p, threshold, cap):
    weights, last, _ = oracles.advance(p, threshold=threshold, remainder_at_cap=cap)
    states, found = torch.randn(len(p), 3, dtype=torch.float64), {}
    for rule in ("mean", "interpolate", "final"):
        given, steps = torch.tensor(p, dtype=torch.float64).view(-1, 1, 1), states.view(-1, 1, 1, 3)
        now, _ = given_steps(given, threshold=threshold, remainder_at_cap=cap, output=rule, states=steps)
        found[rule] = now.output[0, 0]
    torch.testing.assert_close(found["mean"], sum(w * x for w, x in zip(weights, states, strict=True)))
    share = torch.zeros(3, dtype=torch.float64)
    for w, x in zip(weights, states, strict=True):
        share = w * x + (1 - w) * share
    torch.testing.assert_close(found["interpolate"], share)
    assert torch.equal(found["final"], states[last - 1])


def test_ponder_cost_is_the_mean_of_steps_and_remainder_over_real_positions():
    steps, remainder = torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([[0.25, 0.5, 0.0]])
    padding = right_padding([2], 3)
    assert ponder_cost(steps, remainder, padding=padding) == (3.25 + 1.5) / 2
    assert ponder_cost(steps, remainder, padding=None) == pytest.approx(4.75 / 3)
    assert ponder_cost(steps, remainder, padding=torch.ones(1, 3, dtype=torch.bool)) == 0


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.1, float("nan")])
def test_thresholds_that_are_none_are_refused(threshold):
    config = ModelConfig(halting=HaltingConfig(side="both"))
    with pytest.raises(UserError, match="halting_threshold: expected"):
        DepthOptions(halting_threshold=threshold).check(config)
    DepthOptions(halting_threshold=1.0).check(config)


def unit(**choices):
    module = ACT(4, HaltingConfig(bias=-0.5, **choices))
    torch.nn.init.normal_(module.weight)
    return module


def probability(module, states, *, padding=None):
    call = context(rule=module, padding=padding)
    was = module.start(states, padding)
    return module.probability(was, Step(states, states, 0, call, lambda x: x))[0]


def test_probability_is_the_logistic_of_an_affine_map():
    module, states = unit(), torch.randn(2, 3, 4)
    p = probability(module, states)
    for row in range(2):
        for i in range(3):
            logit = sum(module.weight[0, c] * states[row, i, c] for c in range(4)) + module.bias
            torch.testing.assert_close(p[row, i], 1 / (1 + torch.exp(-logit[0])))
    assert module.bias.item() == -0.5


def test_a_sequence_halts_by_the_mean_over_its_real_positions():
    whole, single, states = unit(scope="sequence"), unit(), torch.randn(2, 3, 4)
    single.load_state_dict(whole.state_dict())
    padding = right_padding([3, 2], 3)
    each, shared = probability(single, states), probability(whole, states, padding=padding)
    torch.testing.assert_close(shared[0], each[0].mean().expand(3))
    torch.testing.assert_close(shared[1], each[1, :2].mean().expand(3))
    torch.testing.assert_close(probability(whole, states), each.mean(1, keepdim=True).expand(2, 3))
    assert (probability(whole, states, padding=torch.ones(2, 3, dtype=torch.bool)) == 0).all()


def test_probabilities_are_at_least_float32():
    module, states = unit(), torch.randn(2, 3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert probability(module, states.bfloat16()).dtype == torch.float32
        torch.testing.assert_close(probability(module, states), probability(module, states.double()).float())
    assert probability(module.bfloat16(), states.bfloat16()).dtype == torch.float32
    assert FixedDepth().start(states.bfloat16(), None).halted.dtype == torch.float32
    assert probability(module.double(), states.double()).dtype == torch.float64


def test_before_the_first_step_that_may_be_the_last_no_probability_counts():
    """``min_steps``: its steps have weight 0 before the unit is asked, and from then on the rule is as without it."""
    module = small_recurrence(halting=True, max_steps=6, min_steps=3)
    states, padding = torch.randn(3, 5, 8, dtype=torch.float64), right_padding((5, 3, 1), 5)
    _, trace = go(module, states, padding=padding)
    assert (trace.steps[~padding] >= 3).all()
    assert (trace.weight[:2] == 0).all()
    assert (trace.probability[:2] == 0).all()
    torch.testing.assert_close(trace.weight.sum(0), (~padding).double())
    assert trace.steps[~padding].unique().numel() > 1
    one = small_recurrence(halting=True, max_steps=6, min_steps=1)
    one.load_state_dict(module.state_dict())
    assert (go(one, states, padding=padding)[1].steps[~padding] < 3).any()


@pytest.mark.parametrize("steps", [1, 2, 4, 6, 16])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_with_the_default_bias_a_new_model_takes_all_steps(steps, norm):
    model = build(config_of(**SIZES | {"max_steps": steps}, architecture="classifier", num_classes=3, norm=norm,
                            halting=True, halting_bias=None))  # fmt: skip
    source = torch.randint(3, 9, (4, 7))
    assert (model(source).encoder.steps == steps).all()
    assert torch.count_nonzero(model.source.recurrence.halting.weight) == 0
