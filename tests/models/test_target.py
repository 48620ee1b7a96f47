"""The target side under teacher forcing: shifted right, causal, blind to padding."""

import pytest
import torch

from small_models import BLOCKS, DEPTHS, SOURCES, small, variants
from universal_transformer.errors import UserError

VARIANTS = variants() | SOURCES
SOURCE = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0], [7, 8, 2, 0]])


def logits_and_steps(model, labels, **options):
    with torch.no_grad():
        output = model(SOURCE[: len(labels)], labels, **options)
    return output.logits, output.decoder.steps


@pytest.mark.claim("US 12", "US 25")
@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_future_changes_no_logits_and_no_steps(fields):
    model, labels = small(**fields), torch.randint(2, 9, (3, 8))
    first, steps = logits_and_steps(model, labels)
    for at in (1, 6):
        changed = labels.clone()
        changed[:, at:] = torch.where(labels[:, at:] == 8, 2, labels[:, at:] + 1)
        second, other = logits_and_steps(model, changed)
        torch.testing.assert_close(second[:, : at + 1], first[:, : at + 1], rtol=0, atol=1e-12)
        assert torch.equal(other[:, : at + 1], steps[:, : at + 1])
        after = slice(at + 1, None)  # what is predicted from a changed label on is another thing
        assert bool((second[:, after] - first[:, after]).abs().amax(dim=2).gt(1e-10).all())


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
def test_padding_on_either_side_changes_nothing(fields):
    model, labels = small(**fields), torch.randint(2, 9, (3, 6))
    labels[1, 4:] = 0
    real = labels != 0
    expected, steps = logits_and_steps(model, labels)
    blanks = torch.zeros(3, 2, dtype=torch.long)
    for first, last in ((0, 2), (2, 0), (1, 1)):
        padded = torch.cat((blanks[:, :first], labels, blanks[:, :last]), dim=1)
        found, made = logits_and_steps(model, padded)
        inside = slice(first, first + 6)
        torch.testing.assert_close(found[:, inside][real], expected[real], rtol=0, atol=1e-10)
        assert torch.equal(made[:, inside][real], steps[real])
        assert made.sum() == steps.sum()


@pytest.mark.parametrize("fields", DEPTHS.values(), ids=DEPTHS.keys())
def test_rows_do_not_know_of_each_other(fields):
    model, labels = small(**fields), torch.randint(2, 9, (3, 5))
    labels[1, 2:] = 0
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        together = model(SOURCE, labels)
        shuffled = model(SOURCE[order], labels[order])
        torch.testing.assert_close(shuffled.logits, together.logits[order])
        assert torch.equal(shuffled.decoder.steps, together.decoder.steps[order])
        for row in range(3):
            real = labels[row : row + 1, : int((labels[row] != 0).sum())]
            alone = model(SOURCE[row : row + 1], real)
            torch.testing.assert_close(alone.logits[0], together.logits[row, : real.shape[1]])


@pytest.mark.claim("US 12", "US 25", "equation 8")
@pytest.mark.parametrize("fields", BLOCKS.values(), ids=BLOCKS.keys())
def test_targets_are_shifted_right_after_the_start_token(fields):
    model = small(start_id=7, **fields)
    labels = torch.tensor([[3, 4, 5, 2]])
    logits, _ = logits_and_steps(model, labels)
    state = model.start(SOURCE[:1], capacity=4)
    with torch.no_grad():
        fed = model.target.advance(torch.tensor([[7, 3, 4, 5]]), state)
    torch.testing.assert_close(fed, logits)


@pytest.mark.claim("US 11", "US 24", "equation 8", "tutorial output")
@pytest.mark.parametrize("tie_output", [True, False])
@pytest.mark.parametrize("output_bias", [True, False])
@torch.no_grad()
def test_logits_are_an_affine_map_of_the_last_states(tie_output, output_bias):
    side = small(tie_output=tie_output, output_bias=output_bias).target
    states = torch.randn(2, 3, 8, dtype=torch.float64)
    matrix = side.embedding.weight if tie_output else side.output.weight
    assert (side.output is None) == tie_output
    assert (side.bias is None) != output_bias
    expected = torch.einsum("btd,vd->btv", states, matrix) + (side.bias if output_bias else 0.0)
    torch.testing.assert_close(side.logits(states), expected)


def test_a_cache_says_how_much_it_holds():
    model = small()
    state = model.start(SOURCE, capacity=3)
    tokens = torch.ones(3, 2, dtype=torch.long)
    with torch.no_grad():
        model.target.advance(tokens, state)
        with pytest.raises(UserError, match=r"2 \+ 2 positions do not fit a cache of capacity 3"):
            model.target.advance(tokens, state)
        model.target.advance(tokens[:, :1], state)  # and a refusal has spoilt nothing
    with pytest.raises(UserError, match="capacity=0"):
        model.start(SOURCE, capacity=0)


@pytest.mark.parametrize("fields", [{}, {"halting": True, "max_steps": 4}])
def test_depth_is_a_run_time_argument(fields):
    model, labels = small(**fields), torch.randint(2, 9, (3, 5))
    if not fields:
        for depth in (1, 2, 7):
            _, steps = logits_and_steps(model, labels, max_steps=depth)
            assert bool((steps == depth).all())
        return
    _, usual = logits_and_steps(model, labels)
    _, sooner = logits_and_steps(model, labels, halting_threshold=0.05)
    _, capped = logits_and_steps(model, labels, max_steps=2)
    assert float(sooner.mean()) < float(usual.mean())
    assert torch.equal(capped, usual.clamp(max=2))
    for options in (
        {"max_steps": 0},
        {"max_steps": -1},
        {"halting_threshold": 0.0},
        {"halting_threshold": 1.5},
    ):
        with pytest.raises(UserError, match=next(iter(options))):
            logits_and_steps(model, labels, **options)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (
            {"tied": False},
            {"max_steps": 4},
            "max_steps=4: an untied model has one block a step, and this one has 3",
        ),
        (
            {"step_coordinates": "learned"},
            {"max_steps": 4},
            "step 4 lies beyond the learned table of 3 steps",
        ),
        (
            {"position_coordinates": "learned", "max_positions": 4},
            {},
            "position 5 lies beyond the learned table of 4 positions",
        ),
    ],
)
def test_tables_that_are_too_short_say_how_long_they_are(fields, options, message):
    with pytest.raises(UserError, match=message):
        logits_and_steps(small(**fields), torch.randint(2, 9, (3, 5)), **options)
