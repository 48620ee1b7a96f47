import copy
from itertools import pairwise

import pytest
import torch

import oracles
from small import HEADS, WIDTH, context_of, coordinates, go, left_padding, right_padding, small_recurrence
from small_models import small
from universal_transformer.errors import UserError
from universal_transformer.nn.context import Kept
from universal_transformer.nn.halting import Accumulating
from universal_transformer.nn.recurrence import depth_loop

LENGTHS = (5, 3, 1)
IDS = torch.tensor([[3, 4, 5]])
NEAR = {"atol": 1e-5, "rtol": 0}  # coordinates are computed in float32


def batch(length=5):
    return torch.randn(len(LENGTHS), length, WIDTH, dtype=torch.float64)


def check_against(run, module, *, padded, source=None, **depth):
    """``module`` on a padded batch and the naive ``run`` on each of its sequences alone: the same in all respects."""
    states, padding = batch(), padded(LENGTHS, 5)
    source_padding = None if source is None else right_padding((4, 2, 1), 4)
    ours, trace = go(module, states, padding=padding, source=source, source_padding=source_padding, **depth)
    for row in range(len(LENGTHS)):
        real = ~padding[row]
        seen = None if source is None else list(source[row, ~source_padding[row]])
        naive = run(row, list(states[row, real]), seen)
        torch.testing.assert_close(ours[row, real], torch.stack(naive.states), **NEAR)
        assert trace.steps[row, real].tolist() == naive.steps
        torch.testing.assert_close(trace.remainder[row, real].tolist(), naive.remainder, **NEAR)
        assert naive.margin > 1e-4
    assert (trace.steps[padding] == 0).all()
    assert (trace.remainder[padding] == 0).all()
    return trace


@pytest.mark.claim(
    "US 4",
    "US 8",
    "US 17",
    "US 21",
    "US FIG. 1",
    "US FIG. 2",
    "appendix A",
    "equation 4",
    "equation 5",
    "figure 1",
    "figure 4",
)
@pytest.mark.parametrize("padded", [right_padding, left_padding])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("decoder", [False, True])
def test_fixed_depth_is_the_naive_loop(norm, padded, decoder):
    module = small_recurrence(norm=norm, decoder=decoder, cross_attention=decoder, max_steps=3)
    source = torch.randn(3, 4, WIDTH, dtype=torch.float64) if decoder else None
    trace = check_against(
        lambda _, states, seen: oracles.fixed(module, states, max_steps=3, source=seen),
        module,
        padded=padded,
        source=source,
    )
    assert trace.ponder_cost == 0
    assert trace.mean_steps() == 3


def test_a_step_of_several_layers_and_a_convolution():
    module = small_recurrence(layers_per_step=2, transition="separable_convolution", tied=False, max_steps=2)
    check_against(lambda _, states, __: oracles.fixed(module, states, max_steps=2), module, padded=right_padding)


HALTING = [
    {"state": state, "output": output, "norm": norm, "remainder_at_cap": cap}
    for state in ("frozen", "evolving")
    for norm in ("post", "pre")
    for output, cap in (("mean", True), ("interpolate", False), ("final", True))
]


def naive_halting(module, *, max_steps=5, threshold=0.99):
    return lambda _, states, seen: oracles.halting(
        module, states, max_steps=max_steps, threshold=threshold, source=seen
    )


@pytest.mark.claim("US 13", "US 26", "appendix B", "listing 1", "listing 2")
@pytest.mark.parametrize("choices", HALTING, ids=lambda c: "-".join(map(str, c.values())))
@pytest.mark.parametrize("scope", ["position", "sequence"])
@pytest.mark.parametrize("form", ["auto", "masked"])
def test_halting_is_the_naive_loop_over_positions(choices, scope, form):
    module = small_recurrence(halting=True, scope=scope, execution=form, **choices)
    trace = check_against(naive_halting(module), module, padded=right_padding, threshold=0.99)
    assert len(trace.steps[~trace.padding].unique()) > 1, "no position halts before another: nothing is tested"


@pytest.mark.claim("US 5", "US 18", "equation 5", "version 1 equation 4")
@pytest.mark.parametrize("residual", ["state", "previous"])
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(
    ("norm", "halts"), [("post", False), ("pre", False), ("deep", False), ("post", True), ("pre", True)]
)
def test_the_printed_residual_leaves_the_coordinates_out(norm, decoder, halts, residual):
    choices = {"norm": norm, "decoder": decoder, "cross_attention": decoder, "halting": halts, "layers_per_step": 2}
    module = small_recurrence(residual=residual, **choices)
    source = torch.randn(3, 4, WIDTH, dtype=torch.float64) if decoder else None
    naive = (
        naive_halting(module)
        if halts
        else lambda _, states, seen: oracles.fixed(module, states, max_steps=5, source=seen)
    )
    check_against(naive, module, padded=right_padding, source=source)
    usual = small_recurrence(**choices)
    usual.load_state_dict(module.state_dict())
    states = batch()
    assert (go(usual, states, source=source)[0] - go(module, states, source=source)[0]).abs().max() > 1e-3


@pytest.mark.claim("US 5", "US 18", "version 1 equation 4")
def test_a_step_is_the_equations_of_the_patent():
    """``A^t = LN(H^{t-1} + MHSA(H^{t-1} + P^t))``, ``H^t = LN(A^{t-1} + Transition(A^t))``, scores over ``sqrt(d)``."""
    recurrence = small(**{"step.residual": "previous", "attention.scale": "width"}).source.recurrence.double()
    recurrence.decoder = False  # what the helpers ask
    states = torch.randn(1, 4, 8, dtype=torch.float64)
    (block,), positions = recurrence.blocks, range(4)
    h = before = list(states[0])
    for step in range(3):
        x = oracles.timed(recurrence, h, step)
        mixed = [oracles.self_attention(block.attention, x, i, causal=False, scale="width") for i in positions]
        a = [oracles.normalised(h[i] + mixed[i], block.after_attention.norm) for i in positions]
        changed = [oracles.feed_forward(block.transition, a, i) for i in positions]
        h = [oracles.normalised(before[i] + changed[i], block.after_transition.norm) for i in positions]
        before = a
    torch.testing.assert_close(go(recurrence, states)[0][0], torch.stack(h), **NEAR)


@pytest.mark.parametrize("choices", HALTING[::4], ids=lambda c: "-".join(map(str, c.values())))
@pytest.mark.parametrize("padded", [right_padding, left_padding])
@pytest.mark.parametrize("form", ["auto", "masked"])
def test_halting_decoder_is_the_naive_loop_over_positions(choices, padded, form):
    module = small_recurrence(halting=True, decoder=True, cross_attention=True, execution=form, **choices)
    source = torch.randn(3, 4, WIDTH, dtype=torch.float64)
    trace = check_against(naive_halting(module), module, padded=padded, source=source)
    assert len(trace.steps[~trace.padding].unique()) > 1


@pytest.mark.parametrize("choices", HALTING, ids=lambda c: "-".join(map(str, c.values())))
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("form", ["auto", "masked"])
def test_halted_positions_enter_later_blocks_as_when_they_last_ran(choices, decoder, form):
    module = small_recurrence(
        halting=True, layers_per_step=3, decoder=decoder, cross_attention=decoder, execution=form, **choices
    )
    source = torch.randn(3, 4, WIDTH, dtype=torch.float64) if decoder else None
    trace = check_against(naive_halting(module), module, padded=right_padding, source=source)
    assert len(trace.steps[~trace.padding].unique()) > 1


def test_several_layers_a_step_and_a_convolution_halt_as_one():
    module = small_recurrence(halting=True, layers_per_step=2, transition="separable_convolution")
    check_against(naive_halting(module), module, padded=right_padding)


@pytest.mark.claim("US 13", "US 26", "section 2.2")
@pytest.mark.parametrize("decoder", [False, True])
def test_the_state_of_a_halted_position_is_copied_unchanged(decoder):
    module = small_recurrence(halting=True, output="final", decoder=decoder)
    padding = right_padding(LENGTHS, 5)
    found, trace = go(module, batch(), padding=padding, keep=Kept(states=True))
    steps = trace.steps.long()
    assert len(steps[~padding].unique()) > 1, "no position halts before another: nothing is tested"
    for row, place in (~padding).nonzero().tolist():
        last = int(steps[row, place])
        walk = trace.states[:, row, place]
        assert all(torch.equal(later, walk[last - 1]) for later in walk[last:])
        assert all(not torch.equal(one, other) for one, other in pairwise(walk[:last]))
        assert torch.equal(found[row, place], walk[last - 1])


class Scheduled(Accumulating):
    """Position i halts after step ``N_i``."""

    output_rule = "final"

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def probability(self, was, step):
        return (self.steps == step.number + 1).to(was.halted.dtype).expand_as(was.halted), ()


@pytest.mark.claim("US FIG. 5")
def test_a_later_step_sees_each_halted_position_as_it_was_at_its_own_last_step():
    """Figure 5 of the patent: four positions take 4, 6, 5 and 2 steps."""
    module, last = small_recurrence(halting=True, max_steps=8), torch.tensor([4, 6, 5, 2])
    states = torch.randn(1, 4, WIDTH, dtype=torch.float64)
    keep = Kept(states=True)
    output, trace = go(module, states, exit=Scheduled(last), keep=keep)
    assert trace.steps.tolist() == [last.tolist()]
    for step, seen in ((4, (3, 3, 3, 2)), (6, (4, 5, 5, 2))):  # what step 4 and step 6 attend to
        was = torch.stack([trace.states[at - 1, 0, position] for position, at in enumerate(seen)]).unsqueeze(0)
        context = context_of(module, 4)
        signals = module.coordinates.signals(8, like=states)
        timed = module.coordinates(was, context.encoding, step=step - 1, signals=signals)
        new = module.blocks[0](timed, context)
        torch.testing.assert_close(trace.states[step - 1, 0, 1], new[0, 1], **NEAR)
    final = torch.stack([trace.states[count - 1, 0, position] for position, count in enumerate(last.tolist())])
    torch.testing.assert_close(output[0], final, **NEAR)


def test_frozen_states_of_several_blocks_differ_from_evolving_ones():
    """With ``final`` and one threshold, a halted position differs only in what others see of it."""
    frozen = small_recurrence(halting=True, layers_per_step=2, output="final")
    evolving = small_recurrence(halting=True, layers_per_step=2, output="final", state="evolving")
    evolving.load_state_dict(frozen.state_dict())
    states = batch()
    assert (go(frozen, states)[0] - go(evolving, states)[0]).abs().max() > 1e-3


@pytest.mark.claim("US 1", "US 14")
def test_another_cap_and_threshold_at_run_time():
    module, seen = small_recurrence(halting=True, max_steps=5), set()
    for max_steps, threshold in ((1, 0.99), (2, 0.99), (9, 0.99), (9, 0.4), (9, 1.0)):
        torch.manual_seed(1)
        trace = check_against(
            naive_halting(module, max_steps=max_steps, threshold=threshold),
            module,
            padded=right_padding,
            max_steps=max_steps,
            threshold=threshold,
        )
        assert trace.steps.max() <= max_steps
        seen.add(float(trace.mean_steps()))
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("choice", "other"),
    [
        ({"state": "frozen"}, {"state": "evolving"}),
        ({"output": "mean"}, {"output": "interpolate"}),
        ({"output": "mean"}, {"output": "final"}),
        ({"remainder_at_cap": True}, {"remainder_at_cap": False}),
        ({"scope": "position"}, {"scope": "sequence"}),
    ],
)
def test_choices_differ(choice, other):
    """With every other choice the result is another one, so that the comparisons above can fail."""
    one = small_recurrence(halting=True, max_steps=4, **choice)
    two = small_recurrence(halting=True, max_steps=4, **other)
    two.load_state_dict(one.state_dict())
    states = batch()
    assert (go(one, states)[0] - go(two, states)[0]).abs().max() > 1e-3


@pytest.mark.claim("US 13", "US 26", "listing 1", "section 2.2", "tutorial halting")
def test_the_loop_ends_when_nothing_runs():
    module, calls = small_recurrence(halting=True, max_steps=50, execution="masked"), []
    module.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    _, trace = go(module, batch(), padding=right_padding(LENGTHS, 5))
    assert len(calls) == int(trace.steps.max()) < 50
    assert trace.probability.shape == trace.weight.shape == (len(calls), 3, 5)


def test_padding_keeps_no_loop_alive_and_stays_blank():
    module, calls = small_recurrence(halting=True, max_steps=50), []
    module.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    nothing = torch.ones(3, 5, dtype=torch.bool)
    states, trace = go(module, batch(), padding=nothing)
    assert len(calls) == 1
    assert trace.steps.sum() == trace.ponder_cost == trace.mean_steps() == 0
    assert (states == 0).all()


def test_weights_of_a_position_sum_to_one():
    module = small_recurrence(halting=True, max_steps=3, bias=-2.0)
    padding = right_padding(LENGTHS, 5)
    _, trace = go(module, batch(), padding=padding)
    torch.testing.assert_close(trace.weight.sum(0), (~padding).double())
    open_ended = copy.deepcopy(module)
    open_ended.halting.halts_at_cap = False
    _, trace = go(open_ended, batch(), padding=padding)
    assert (trace.weight.sum(0)[~padding] < 0.99 + 1e-9).any()


def test_who_never_halts_before_the_cap_gets_the_state_of_a_fixed_depth():
    halting = small_recurrence(halting=True, bias=-1000.0, max_steps=4)
    fixed = small_recurrence(max_steps=4)
    fixed.load_state_dict(halting.state_dict(), strict=False)
    states, padding = batch(), right_padding(LENGTHS, 5)
    ours, trace = go(halting, states, padding=padding)
    wanted, _ = go(fixed, states, padding=padding)
    torch.testing.assert_close(ours[~padding], wanted[~padding])
    assert (trace.steps[~padding] == 4).all()
    assert (trace.remainder[~padding] == 1).all()
    assert trace.ponder_cost == 5


def test_who_halts_at_once_gets_the_state_of_one_step():
    halting = small_recurrence(halting=True, bias=1000.0, max_steps=4)
    fixed = small_recurrence(max_steps=4)
    fixed.load_state_dict(halting.state_dict(), strict=False)
    states = batch()
    ours, trace = go(halting, states)
    torch.testing.assert_close(ours, go(fixed, states, max_steps=1)[0])
    assert trace.ponder_cost == 2  # N = 1, R = 1


@pytest.mark.claim("US 1", "US 14", "section 4")
@pytest.mark.parametrize("halting", [False, True])
def test_tied_is_untied_with_equal_copies(halting):
    """Outputs alike, and the gradient of the shared block is the sum over its copies."""
    tied = small_recurrence(halting=halting, max_steps=4, layers_per_step=2, execution="masked")
    untied = small_recurrence(halting=halting, max_steps=4, layers_per_step=2, tied=False)
    for step in range(4):
        for layer in range(2):
            untied.blocks[2 * step + layer].load_state_dict(tied.blocks[layer].state_dict())
    if halting:
        untied.halting.load_state_dict(tied.halting.state_dict())
    states, padding = batch(), right_padding(LENGTHS, 5)
    outputs = []
    for module in (tied, untied):
        output, trace = go(module, states, padding=padding)
        (output[~padding].sin().sum() + trace.ponder_cost).backward()
        outputs.append(output)
    assert torch.equal(*outputs)
    for layer in range(2):
        for name, parameter in tied.blocks[layer].named_parameters():
            copies = [dict(untied.blocks[2 * step + layer].named_parameters())[name].grad for step in range(4)]
            summed = sum(torch.zeros_like(parameter) if g is None else g for g in copies)
            torch.testing.assert_close(parameter.grad, summed)


def test_an_untied_model_has_no_more_steps_than_blocks():
    model = small(architecture="language_model", tied=False, max_steps=3)
    with pytest.raises(UserError, match=r"max_steps=4: .* this one has 3"):
        model(IDS, max_steps=4)
    model(IDS, max_steps=2)
    for steps in (0, 10**8):
        with pytest.raises(UserError, match=f"max_steps: expected .* at most 65,536 or None, found {steps}"):
            small(architecture="language_model")(IDS, max_steps=steps)
    with pytest.raises(UserError, match=r"halting_threshold: expected .* found 1.5"):
        small(architecture="language_model", halting=True)(IDS, halting_threshold=1.5)


@pytest.mark.claim("figure 5")
@pytest.mark.parametrize("halting", [False, True])
def test_keeping_attention_changes_nothing_and_rows_sum_to_one(halting):
    module = small_recurrence(halting=halting, decoder=True, cross_attention=True, layers_per_step=2, max_steps=3)
    module.loop = depth_loop  # compaction, which does not keep attention, differs by rounding
    states, source = batch(), torch.randn(3, 4, WIDTH, dtype=torch.float64)
    padding, hidden = right_padding(LENGTHS, 5), right_padding((4, 2, 1), 4)
    plain, _ = go(module, states, padding=padding, source=source, source_padding=hidden)
    ours, trace = go(module, states, padding=padding, source=source, source_padding=hidden, keep=Kept(attention=True))
    assert torch.equal(plain, ours)
    applied = 2 * (3 if trace.weight is None else len(trace.weight))
    assert trace.self_attention.shape == (applied, 3, HEADS, 5, 5)
    assert trace.cross_attention.shape == (applied, 3, HEADS, 5, 4)
    for kept in (trace.self_attention, trace.cross_attention):
        torch.testing.assert_close(kept.sum(-1), torch.ones_like(kept[..., 0]))
    assert (trace.cross_attention[:, 1, :, :, 2:] == 0).all()
    assert (trace.self_attention.triu(1) == 0).all()
    _, mean = go(module, states, padding=padding, source=source, source_padding=hidden, keep=Kept(attention="mean"))
    for name in ("self_attention", "cross_attention"):
        torch.testing.assert_close(getattr(mean, name), getattr(trace, name).mean(2, keepdim=True))


def test_rows_of_a_batch_do_not_meet():
    module, states, padding = small_recurrence(halting=True), batch(), right_padding(LENGTHS, 5)
    order = torch.tensor([2, 0, 1])
    ours, trace = go(module, states, padding=padding)
    other, moved = go(module, states[order], padding=padding[order])
    torch.testing.assert_close(ours[order], other)
    assert torch.equal(trace.steps[order], moved.steps)


def test_what_stands_at_padding_does_not_matter():
    for choices in (
        {},
        {"halting": True},
        {"decoder": True, "halting": True},
        {"state": "evolving", "halting": True},
    ):
        module, states, padding = small_recurrence(**choices), batch(), right_padding(LENGTHS, 5)
        noisy = torch.where(padding.unsqueeze(-1), 100.0 * torch.randn_like(states), states)
        (one, first), (two, second) = (go(module, x, padding=padding) for x in (states, noisy))
        torch.testing.assert_close(one[~padding], two[~padding])
        assert torch.equal(first.steps, second.steps)


@pytest.mark.claim("US 8", "US 21")
def test_a_longer_depth_is_the_same_walk_continued():
    """The states of T + 1 steps are one step on from those of T: at run time depth is only where to stop."""
    module, states = small_recurrence(max_steps=3), batch()
    encoding = module.coordinates.position(torch.arange(5).unsqueeze(0))
    walk = [states, *(go(module, states, max_steps=depth)[0] for depth in range(1, 6))]
    for step, (before, after) in enumerate(pairwise(walk)):
        signals = module.coordinates.signals(5, like=before)
        timed = module.coordinates(before, encoding, step=step, signals=signals)
        torch.testing.assert_close(module.blocks[0](timed, context_of(module, 5)), after)


def test_a_learned_step_table_ends_where_it_ends():
    module = small_recurrence(coordinates=coordinates(step="learned", max_steps=3), max_steps=3)
    torch.nn.init.normal_(module.coordinates.step.weight)
    go(module, batch(), max_steps=3)
    with pytest.raises(UserError, match="step 4 lies beyond the learned table of 3 steps"):
        go(module, batch(), max_steps=4)
