"""Tokens or facts to one class."""

import pytest
import torch

from small_models import small, variants
from universal_transformer.errors import UserError
from universal_transformer.models.heads import ClassHead, ComparingHead, pool
from universal_transformer.registry import build
from universal_transformer.typed import replaced

EXTRA = {
    "whole sequence": {"halting": True, "halting_scope": "sequence"},
    "end": {"end_coordinates": True},
    "padding zeroed": {"zero_padding": True},
    "two texts": {"inputs.segments": 2},
}
VARIANTS = variants() | EXTRA


def classifier(**fields):
    return small(architecture="classifier", num_classes=4, **fields)


def ragged():
    source = torch.randint(2, 9, (3, 5))
    source[1, 3:] = 0
    return source


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS.keys())
@torch.no_grad()
def test_padding_on_either_side_and_the_neighbours_change_nothing(fields):
    model, source = classifier(pooling="last" if "norm" in fields else "mean", **fields), ragged()
    whole, order = model(source), torch.tensor([1, 2, 0])
    assert whole.logits.shape == (3, 4)
    for sides in ((0, 2), (2, 0), (1, 1)):
        padded = model(torch.nn.functional.pad(source, sides))
        torch.testing.assert_close(padded.logits, whole.logits, rtol=0, atol=1e-10)
        torch.testing.assert_close(padded.ponder_cost, whole.ponder_cost)
    torch.testing.assert_close(model(source[order]).logits, whole.logits[order], rtol=0, atol=1e-10)
    torch.testing.assert_close(model(source[1:2, :3]).logits[0], whole.logits[1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("fields", [{}, {"halting": True}, {"norm": "pre", "transition": "separable_convolution"}])
@torch.no_grad()
def test_facts_that_are_padding_change_nothing(fields):
    model = classifier(inputs="facts", max_fact_words=3, **fields)
    story = torch.randint(1, 9, (2, 4, 3))
    story[1, 2:] = 0
    whole = model(story)
    for sides in ((0, 2), (2, 0)):
        padded = model(torch.nn.functional.pad(story, (0, 0, *sides)))
        torch.testing.assert_close(padded.logits, whole.logits, rtol=0, atol=1e-10)
    torch.testing.assert_close(model(story[1:, :2]).logits, whole.logits[1:], rtol=0, atol=1e-10)
    assert whole.encoder.steps[1, 2:].tolist() == [0.0, 0.0]


def test_pooling_is_the_mean_or_the_last_of_the_real_positions():
    states = torch.randn(3, 4, 2)
    padding = torch.tensor([[False] * 4, [False, False, True, True], [True, True, True, False]])
    kept = [states[0], states[1, :2], states[2, 3:]]
    mean, last = (pool(states, padding=padding, how=how) for how in ("mean", "last"))
    for row, real in enumerate(kept):
        torch.testing.assert_close(mean[row], real.mean(dim=0))
        torch.testing.assert_close(last[row], real[-1])
    torch.testing.assert_close(pool(states, padding=None, how="mean"), states.mean(dim=1))
    torch.testing.assert_close(pool(states, padding=None, how="last"), states[:, -1])


def test_two_texts_are_read_by_their_means_and_how_these_differ():
    """Against a loop over the rows, with padding on either side; an exit and each step read the same way."""
    head = ComparingHead(2, 3, end_id=2).double()
    texts = [([5, 6, 2], [7, 2]), ([5, 2], [6, 7, 2])]
    source = torch.tensor([[0, 5, 6, 2, 7, 2, 0], [5, 2, 6, 7, 2, 0, 0]])
    states = torch.randn(2, 7, 2, dtype=torch.float64)
    read, whole = head.reader(source, padding=source == 0)
    assert whole
    for row, (start, (first, second)) in enumerate(zip((1, 0), texts, strict=True)):
        middle, end = start + len(first), start + len(first) + len(second)
        u, v = states[row, start:middle].mean(dim=0), states[row, middle:end].mean(dim=0)
        expected = head.weight @ torch.cat([u, v, (u - v).abs(), u * v]) + head.bias
        torch.testing.assert_close(read(states)[row], expected)
    unpadded, _ = head.reader(source[:1, 1:6], padding=None)
    torch.testing.assert_close(unpadded(states[:1, 1:6]), read(states)[:1])


def test_the_mean_of_two_texts_compares_them():
    two = replaced(classifier().config, {"inputs.segments": 2})
    assert isinstance(build(two).head, ComparingHead)
    assert isinstance(build(replaced(two, {"outputs.pooling": "last"})).head, ClassHead)


def test_a_row_of_nothing_but_padding_is_finite():
    for pooling in ("mean", "last"):
        with torch.no_grad():
            output = classifier(pooling=pooling, halting=True)(torch.tensor([[3, 4], [0, 0]]))
        assert bool(output.logits.isfinite().all())
        assert output.encoder.steps[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("offsets", ["random", "scattered"])
@torch.no_grad()
def test_positions_are_drawn_while_training_and_only_then(offsets):
    model, source = classifier(position_offsets=offsets, dropout=0.0), ragged()
    usual = model(source).logits
    assert torch.equal(model(source).logits, usual)
    model.train()
    assert bool((model(source).logits - usual).abs().max() > 1e-8)


@torch.no_grad()
def test_depth_is_chosen_at_run_time():
    model, source = classifier(), ragged()
    for depth in (1, 2, 9):
        steps = model(source, max_steps=depth).encoder.steps
        assert torch.equal(steps, torch.where(source == 0, 0.0, float(depth)).to(steps.dtype))
    with pytest.raises(UserError, match="max_steps: expected a whole number, at least 1"):
        model(source, max_steps=0)
