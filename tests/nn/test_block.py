import pytest
import torch
from torch.nn import functional

import oracles
from small import HEADS, WIDTH, block, context, right_padding, small_block
from universal_transformer.models.components import NORMS, TRANSITIONS
from universal_transformer.nn.context import AttentionRecord, key_mask
from universal_transformer.nn.step_config import StepConfig


def states(batch, length):
    return torch.randn(batch, length, WIDTH, dtype=torch.float64)


def stacked(rows):
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.claim("US FIG. 4", "JP 4", "equation 4", "equation 5", "figure 2", "tutorial step")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("transition", TRANSITIONS)
def test_encoder_block_is_the_naive_one(norm, transition):
    module, x = small_block(norm=norm, transition=transition), states(2, 5)
    naive = stacked([oracles.block(module, list(row)) for row in x])
    torch.testing.assert_close(module(x, context()), naive)


@pytest.mark.claim("US 10", "US 23", "US FIG. 4", "JP 5", "figure 2", "tutorial decoder")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("transition", TRANSITIONS)
def test_decoder_block_is_the_naive_one(norm, transition):
    module = small_block(decoder=True, cross_attention=True, norm=norm, transition=transition)
    x, source, lengths = states(2, 5), states(2, 4), (4, 2)
    memory = module.cross_attention.project_source(source, padding=right_padding(lengths, 4))
    naive = stacked(
        [oracles.block(module, list(row), causal=True, source=list(source[i, : lengths[i]])) for i, row in enumerate(x)]
    )
    ours = module(x, context(causal=True, source=[memory]))
    torch.testing.assert_close(ours, naive)
    assert (ours - module(x, context(source=[memory]))).abs().max() > 1e-3


def test_where_the_norm_stands_matters():
    post, pre = small_block(norm="post"), small_block(norm="pre")
    pre.load_state_dict(post.state_dict())
    x = states(1, 3)
    assert (post(x, context()) - pre(x, context())).abs().max() > 1e-2


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_padding_is_not_seen(transition):
    module, x, lengths = small_block(transition=transition), states(3, 6), (6, 4, 1)
    padding = right_padding(lengths, 6)
    ours = module(x, context(mask=key_mask(padding), padding=padding))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(ours[row, :length], module(x[row : row + 1, :length], context())[0])


def test_order_of_rows_does_not_matter():
    module, x = small_block(), states(4, 5)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(module(x, context())[order], module(x[order], context()))


def test_without_coordinates_order_of_positions_does_not_matter():
    module, x = small_block(), states(2, 5)
    order = torch.tensor([4, 2, 0, 3, 1])
    torch.testing.assert_close(module(x, context())[:, order], module(x[:, order], context()))
    uneven = small_block(transition="separable_convolution")
    assert (uneven(x, context())[:, order] - uneven(x[:, order], context())).abs().max() > 1e-3


def test_recording_attention_changes_nothing():
    module = small_block(decoder=True, cross_attention=True)
    x, memory = states(2, 5), module.cross_attention.project_source(states(2, 4))
    record = AttentionRecord()
    ours = module(x, context(causal=True, source=[memory], record=record))
    assert torch.equal(ours, module(x, context(causal=True, source=[memory])))
    (own,), (cross,) = record.self_attention, record.cross_attention
    assert own.shape == (2, HEADS, 5, 5)
    assert cross.shape == (2, HEADS, 5, 4)
    assert (own.triu(1) == 0).all()


def normal(x):
    return functional.layer_norm(x, [WIDTH], eps=StepConfig.norm_epsilon)


@pytest.mark.claim("appendix A", "figure 4", "tutorial step")
@pytest.mark.parametrize(
    ("norm", "expected"),
    [("pre", lambda x: x), ("post", lambda x: normal(normal(x)))],
)
def test_dropout_stands_on_each_sublayer_and_only_while_training(norm, expected):
    module = block(norm=norm, dropout=0.999999).double()
    x = states(2, 5)
    # every sub-layer dropped, every residual kept
    torch.testing.assert_close(module.train()(x, context()), expected(x))
    assert not torch.equal(module.eval()(x, context()), x)
