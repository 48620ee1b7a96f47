"""Exits without a trained unit: the naive loop, and the same number by number masked, compacted and cached."""

import copy

import pytest
import torch
from torch import nn

import oracles
from small import WIDTH, cache_for, go, left_padding, piecewise, right_padding, small_recurrence
from universal_transformer.errors import UserError
from universal_transformer.execution import policy
from universal_transformer.execution.compaction import CompactLoop, install
from universal_transformer.nn.halting import FixedDepth
from universal_transformer.rules import Exit

LENGTHS = (5, 3, 1)
NEAR = {"atol": 1e-5, "rtol": 0}
THRESHOLDS = {"state_change": 0.75, "output_change": 0.05, "confidence": 0.55}
KINDS = list(THRESHOLDS)


@pytest.fixture(autouse=True)
def compact(monkeypatch):
    """Small batches are compacted too."""
    monkeypatch.setattr(policy, "LEAST_SAVED", 0)


def batch(length=5):
    return torch.randn(len(LENGTHS), length, WIDTH, dtype=torch.float64)


def linear_head(classes=4):
    head = nn.Linear(WIDTH, classes).double()
    nn.init.normal_(head.weight, std=0.5)
    return head


def unit(kind, head=None, *, threshold=None, **choices):
    chosen = Exit(kind, THRESHOLDS[kind] if threshold is None else threshold)
    return chosen.rule(chosen.threshold, head, **choices)


def fixed(module):
    """The same weights at a fixed depth."""
    other = copy.deepcopy(module)
    other.halting = FixedDepth()
    return other


@torch.no_grad()
def splitting(kind, module, states, *, head, padding=None, together=False, **call):
    """A threshold at which about half of the positions (or sequences) stop at the first step that they can."""
    first = Exit(kind, 0.5).rule.first_step
    walk = [go(module, states, padding=padding, max_steps=step, **call)[0] for step in range(1, first + 1)]
    real = torch.ones(states.shape[:2], dtype=torch.bool) if padding is None else ~padding
    groups = [[(row, i) for i in range(states.shape[1]) if real[row, i]] for row in range(len(states))]
    if not together:
        groups = [[one] for group in groups for one in group]
    scores = []
    for group in groups:
        found = oracles.exit_scores(kind, [[h[row, i] for h in walk] for row, i in group], head=head)
        scores.append(found[-1])
    scores.sort()
    return sum(scores[len(scores) // 2 - 1 : len(scores) // 2 + 1]) / 2


@pytest.mark.parametrize(
    ("norm", "halting", "form"),
    [("post", False, "auto"), ("pre", False, "masked"), ("pre", True, "auto")],
    ids=["fixed", "masked", "instead of a halting unit"],
)
@pytest.mark.parametrize("together", [False, True], ids=["position", "sequence"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exit_is_the_naive_loop(kind, together, norm, halting, form):
    module = small_recurrence(norm=norm, halting=halting, max_steps=7, execution=form)
    head, states, padding = linear_head(), batch(), right_padding(LENGTHS, 5)

    def pooled(states):
        real = ~padding
        return head((states * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True))

    threshold = splitting(kind, fixed(module), states, head=head, padding=padding, together=together)
    scope = {"scope": "sequence"} if together else {}
    chosen = unit(kind, pooled if together else head, threshold=threshold, **scope)
    ours, trace = go(module, states, padding=padding, exit=chosen)
    for row in range(len(LENGTHS)):
        real = ~padding[row]
        naive = oracles.exiting(
            module,
            list(states[row, real]),
            max_steps=7,
            kind=kind,
            threshold=chosen.criterion,
            head=head,
            together=together,
        )
        assert trace.steps[row, real].tolist() == naive.steps
        assert naive.margin > 1e-5
        torch.testing.assert_close(ours[row, real], torch.stack(naive.states), **NEAR)
    assert len(trace.steps[~padding].unique()) > 1, "no position stops before another: nothing is tested"
    assert (trace.steps[padding] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_through_an_exit_is_that_of_finite_differences(kind):
    """Where positions stop is a step function: it has no gradient, and the states that they stop with have one."""
    module, head, states = small_recurrence(norm="pre", max_steps=5, execution="masked"), linear_head(), batch()
    chosen = unit(kind, head, threshold=splitting(kind, module, states, head=head))
    parameters, states = list(module.parameters()), states.requires_grad_()

    def run(states, *_):
        return go(module, states, exit=chosen)[0]

    assert len(go(module, states, exit=chosen)[1].steps.unique()) > 1
    assert torch.autograd.gradcheck(run, (states, *parameters), fast_mode=True, atol=1e-5)
    direction = torch.randn_like(states)
    expected = torch.autograd.grad(run(states), [states, *parameters], direction)
    install(module, "auto")
    torch.testing.assert_close(torch.autograd.grad(run(states), [states, *parameters], direction), expected)


@pytest.mark.parametrize(
    ("decoder", "scope", "blocks"),
    [(False, "position", 1), (False, "sequence", 1), (True, "position", 1), (True, "position", 2)],
    ids=lambda v: str(v),
)
@pytest.mark.parametrize("kind", KINDS)
def test_compact_is_masked(kind, decoder, scope, blocks, monkeypatch):
    ran, run = [], CompactLoop.run
    monkeypatch.setattr(CompactLoop, "run", lambda self, *a, **k: (ran.append(1), run(self, *a, **k))[1])
    module = small_recurrence(decoder=decoder, cross_attention=decoder, norm="pre", max_steps=9, layers_per_step=blocks)
    states, padding = torch.randn(8, 6, WIDTH, dtype=torch.float64), right_padding((6, 3, 5, 1, 2, 6, 4, 5), 6)
    source = torch.randn(8, 3, WIDTH, dtype=torch.float64) if decoder else None
    head, found = linear_head(), []

    def pooled(states):
        return head(states[:, 0])

    threshold = splitting(kind, module, states, head=head, padding=padding, source=source)
    chosen = unit(kind, pooled if scope == "sequence" else head, threshold=threshold, scope=scope)
    for form in ("auto", "masked"):
        one = copy.deepcopy(module)
        install(one, form)
        with torch.no_grad():
            output, trace = go(one, states, padding=padding, source=source, exit=chosen)
        found.append((output.masked_fill(padding.unsqueeze(-1), 0.0), trace.steps, trace.probability, trace.weight))
    assert ran
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
    assert len(found[0][1][~padding].unique()) > 1


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"norm": "pre", "execution": "masked"},
        {"transition": "separable_convolution"},
        {"tied": False},
        {"layers_per_step": 2},
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_piece_by_piece_is_all_at_once(kind, choices):
    module = small_recurrence(decoder=True, cross_attention=True, max_steps=6, **choices)
    states, source = (torch.randn(2, length, WIDTH, dtype=torch.float64) for length in (7, 4))
    head, padding = linear_head(), left_padding((7, 5), 7)
    threshold = splitting(kind, module, states, head=head, padding=padding, source=source)
    exit = unit(kind, head, threshold=threshold)
    whole, trace = go(module, states, padding=padding, source=source, exit=exit)
    cache = cache_for(module, batch=2, capacity=7, convolution=choices.get("transition") is not None)
    projected = module.project_source(source)
    ours, steps = piecewise(module, states, (3, 1, 2, 1), cache=cache, padding=padding, source=projected, exit=exit)
    torch.testing.assert_close(ours[~padding], whole[~padding])
    assert torch.equal(steps, trace.steps)
    assert len(steps[~padding].unique()) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_that_exits_has_the_states_of_a_fixed_depth(kind):
    module, states, padding = small_recurrence(max_steps=7), batch(), right_padding(LENGTHS, 5)
    head = linear_head()
    chosen = unit(kind, lambda states: head(states[:, 0]), scope="sequence")
    ours, trace = go(module, states, padding=padding, exit=chosen)
    for row, steps in enumerate(trace.steps[:, 0].int().tolist()):
        wanted, _ = go(module, states, padding=padding, max_steps=steps)
        torch.testing.assert_close(ours[row, ~padding[row]], wanted[row, ~padding[row]])


@pytest.mark.parametrize("kind", KINDS)
def test_a_criterion_that_never_or_always_holds(kind):
    module, states, head = small_recurrence(max_steps=6, min_steps=2), batch(), linear_head()
    never, always = (1.0, 1e-9) if kind == "confidence" else (1e-9, 1e9)
    ours, trace = go(module, states, exit=unit(kind, head, threshold=never))
    torch.testing.assert_close(ours, go(module, states)[0])
    assert (trace.steps == 6).all()
    ours, trace = go(module, states, exit=unit(kind, head, threshold=always))
    torch.testing.assert_close(ours, go(module, states, max_steps=2)[0])
    assert (trace.steps == 2).all(), "min_steps=2, and what a kind compares must exist"
    assert (go(module, states, max_steps=1, exit=unit(kind, head))[1].steps == 1).all()


def test_exits_do_not_see_later_positions():
    module, states, head = small_recurrence(decoder=True, max_steps=6), batch(), linear_head()
    for kind in KINDS:
        one = go(module, states, exit=unit(kind, head))
        changed = torch.cat((states[:, :3], torch.randn_like(states[:, 3:])), dim=1)
        other = go(module, changed, exit=unit(kind, head))
        torch.testing.assert_close(one[0][:, :3], other[0][:, :3])
        assert torch.equal(one[1].steps[:, :3], other[1].steps[:, :3])


def test_mistakes_are_one_line():
    for wrong, message in (
        (lambda: Exit.parse("confidence"), "exit 'confidence': expected KIND:THRESHOLD, for instance confidence:0.9"),
        (
            lambda: Exit.parse("confidenc:0.9"),
            "exit: kind: expected one of .* found 'confidenc' .did you mean",
        ),
        (lambda: Exit("confidence", 1.5), "exit confidence:1.5: the threshold of confidence is at most 1"),
        (lambda: Exit("state_change", 0.0), "exit: threshold: expected a number, more than 0, found 0.0"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()
    assert Exit.parse(str(Exit("output_change", 1e-3))) == Exit("output_change", 1e-3)
