import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
import small
from small import HEADS, WIDTH, context, coordinates, left_padding, right_padding, stir
from universal_transformer.nn.attention import (
    attend,
    attention_weights,
    merge_heads,
    split_heads,
)
from universal_transformer.nn.context import AttentionRecord, causal_mask, key_mask


def self_attention(**choices):
    return stir(small.self_attention(**choices)).double().eval()


def cross_attention(**choices):
    return stir(small.cross_attention(**choices)).double().eval()


def states(batch, length):
    return torch.randn(batch, length, WIDTH, dtype=torch.float64)


@pytest.mark.claim("equation 2")
def test_heads_split_into_neighbouring_channels_and_merge_back():
    x = states(2, 3)
    heads = split_heads(x, num_heads=2)
    assert torch.equal(heads[1, 1, 2], x[1, 2, WIDTH // 2 :])
    assert torch.equal(merge_heads(heads), x)


@pytest.mark.claim("JP 11", "equation 1")
@given(
    batch=st.integers(1, 3),
    queries=st.integers(1, 5),
    keys=st.integers(1, 5),
    masked=st.sampled_from(("no", "mask", "causal")),
)
def test_fused_attention_is_the_explicit_softmax(batch, queries, keys, masked):
    keys = queries if masked == "causal" else keys
    query = torch.randn(batch, HEADS, queries, 4, dtype=torch.float64)
    key, value = torch.randn(2, batch, HEADS, keys, 4, dtype=torch.float64)
    mask = None
    if masked == "mask":
        mask = torch.rand(batch, 1, queries, keys) < 0.5
        mask[..., 0] = True
    weights = attention_weights(query, key, mask=mask, causal=masked == "causal")
    torch.testing.assert_close(weights.sum(-1), torch.ones(batch, HEADS, queries, dtype=torch.float64))
    fused = attend(query, key, value, mask=mask, causal=masked == "causal")
    torch.testing.assert_close(fused, weights @ value)


@pytest.mark.claim("US 4", "US 5", "US 17", "US 18", "JP 4", "equation 2", "equation 3", "tutorial attention")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_the_naive_loop_over_heads_and_keys(causal, bias):
    module, x = self_attention(bias=bias), states(2, 4)
    ours = module(x, context(causal=causal))
    for row in range(2):
        for i in range(4):
            naive = oracles.self_attention(module, list(x[row]), i, causal=causal)
            torch.testing.assert_close(ours[row, i], naive)
    assert (ours - module(x, context(causal=not causal))).abs().max() > 1e-3


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_keys_are_shared_by_neighbouring_heads_of_queries(causal, groups):
    choices = {"num_heads": 4, "key_value_heads": groups, "bias": True}
    module, over = self_attention(**choices), cross_attention(**choices)
    x, source = states(2, 4), states(2, 3)
    record = AttentionRecord()
    ours = module(x, context(causal=causal, record=record))
    looked = over(x, context(source=[over.project_source(source)]))
    assert record.self_attention[0].shape == (2, 4, 4, 4)
    for row in range(2):
        for i in range(4):
            torch.testing.assert_close(ours[row, i], oracles.self_attention(module, list(x[row]), i, causal=causal))
            naive = oracles.cross_attention(over, list(x[row]), i, source=list(source[row]))
            torch.testing.assert_close(looked[row, i], naive)
    assert sum(p.numel() for p in module.parameters()) == (8 + 1) * (8 + 4 * groups) + (8 + 1) * 8


@pytest.mark.claim("US 5", "US 18", "equation 1", "tutorial attention")
@pytest.mark.parametrize("causal", [False, True])
def test_the_printed_scale_is_the_square_root_of_the_width(causal):
    module, x = self_attention(scale="width"), states(2, 4)
    ours = module(x, context(causal=causal))
    for row in range(2):
        for i in range(4):
            naive = oracles.self_attention(module, list(x[row]), i, causal=causal, scale="width")
            torch.testing.assert_close(ours[row, i], naive)
    usual = self_attention()
    usual.load_state_dict(module.state_dict())
    assert (ours - usual(x, context(causal=causal))).abs().max() > 1e-3


def test_the_printed_scale_of_attention_to_a_source():
    module, x, source = cross_attention(scale="width", num_heads=4), states(1, 3), states(1, 5)
    record = AttentionRecord()
    ours = module(x, context(source=[module.project_source(source)], record=record))
    for i in range(3):
        naive = oracles.cross_attention(module, list(x[0]), i, source=list(source[0]), scale="width")
        torch.testing.assert_close(ours[0, i], naive)
    value = split_heads(module.key_value(source).chunk(2, dim=-1)[1], num_heads=4)
    torch.testing.assert_close(module.output(merge_heads(record.cross_attention[0] @ value)), ours)


def test_with_one_head_both_scales_are_the_same():
    module, x = self_attention(scale="width", num_heads=1), states(1, 4)
    usual = self_attention(num_heads=1)
    usual.load_state_dict(module.state_dict())
    assert torch.equal(usual(x, context()), module(x, context()))


@pytest.mark.parametrize("padded", [right_padding, left_padding])
def test_keys_that_are_padding_are_not_there(padded):
    module, lengths = self_attention(), [5, 2, 3]
    padding, x = padded(lengths, 5), states(3, 5)
    ours = module(x, context(mask=key_mask(padding)))
    for row in range(3):
        real = ~padding[row]
        torch.testing.assert_close(ours[row][real], module(x[row : row + 1, real], context())[0])
    assert (ours - module(x, context()))[1:].abs().max() > 1e-3


def test_a_row_of_nothing_but_padding_is_finite():
    module, x = self_attention(), states(2, 3).requires_grad_()
    padding = right_padding([3, 0], 3)
    ours = module(x, context(mask=key_mask(padding)))
    ours.sum().backward()
    assert ours.isfinite().all()
    assert x.grad.isfinite().all()
    decoder = module(x, context(mask=causal_mask(torch.arange(3).unsqueeze(0), num_keys=3, padding=padding)))
    assert decoder.isfinite().all()


@given(
    stored=st.integers(0, 3),
    new=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
)
def test_causal_mask_is_the_naive_rule(stored, new, lengths):
    total = stored + new
    padding = left_padding([min(n, total) for n in lengths], total)
    mask = causal_mask(torch.arange(stored, total).unsqueeze(0), num_keys=total, padding=padding)
    for row in range(len(lengths)):
        for i in range(new):
            for j in range(total):
                me = stored + i
                allowed = j == me or (j < me and not bool(padding[row, j]))
                assert bool(mask[row, 0, i, j]) == allowed


@pytest.mark.claim("US 10", "US 23", "JP 1", "JP 6", "JP 7", "JP 8", "JP 9", "JP 10", "JP 11")
@pytest.mark.parametrize("bias", [False, True])
def test_cross_attention_is_the_naive_loop_and_sees_no_padding(bias):
    module, x, source = cross_attention(bias=bias), states(2, 3), states(2, 5)
    padding = right_padding([5, 2], 5)
    ours = module(x, context(source=[module.project_source(source, padding=padding)]))
    for row, length in ((0, 5), (1, 2)):
        for i in range(3):
            naive = oracles.cross_attention(module, list(x[row]), i, source=list(source[row, :length]))
            torch.testing.assert_close(ours[row, i], naive)


def test_a_sink_takes_what_nothing_in_the_source_fits():
    module, x, source = cross_attention(sink=True), states(2, 3), states(2, 5)
    plain = cross_attention()
    plain.load_state_dict({name: value for name, value in module.state_dict().items() if name != "sink"})
    torch.nn.init.normal_(module.sink)
    padding, record = right_padding([5, 2], 5), AttentionRecord()
    ours = module(x, context(source=[module.project_source(source, padding=padding)], record=record))
    (weights,) = record.cross_attention
    rest = 1 - weights.sum(dim=-1, keepdim=True)  # what the sink gets, by head
    value = split_heads(module.key_value(source).chunk(2, dim=-1)[1], num_heads=HEADS)
    nothing = split_heads(module.sink.view(1, 1, -1), num_heads=HEADS)
    torch.testing.assert_close(ours, module.output(merge_heads(weights @ value + rest * nothing)))
    assert (weights[1, :, :, 2:] == 0).all()
    scores = attention_weights(
        split_heads(module.query(x), num_heads=HEADS), plain.project_source(source).key, mask=None
    )
    torch.testing.assert_close(weights[0] / weights[0].sum(-1, keepdim=True), scores[0])


def test_rotary_attention_to_a_source_knows_distances_alone():
    module, x, source = cross_attention(rotary=True), states(2, 4), states(2, 6)
    rotary = coordinates(position="rotary")

    def at(first, apart=0):
        asked, looked = (
            rotary.position(begin + torch.arange(n).unsqueeze(0)).rotary
            for begin, n in ((first + apart, 4), (first, 6))
        )
        return module(x, context(source=[module.project_source(source, rotary=looked)], rotary=asked))

    torch.testing.assert_close(at(0), at(31), atol=1e-5, rtol=0)
    assert (at(0) - at(0, apart=3)).abs().max() > 1e-3


def test_recorded_weights_are_those_used_and_change_nothing():
    module, x, padding = self_attention(), states(2, 4), right_padding([4, 2], 4)
    record = AttentionRecord()
    ours = module(x, context(mask=key_mask(padding), record=record))
    (seen,) = record.self_attention
    assert torch.equal(ours, module(x, context(mask=key_mask(padding))))
    value = split_heads(module.query_key_value(x).chunk(3, dim=-1)[2], num_heads=HEADS)
    torch.testing.assert_close(ours, module.output(merge_heads(seen @ value)))
    assert (seen[1, :, :, 2:] == 0).all()
    assert not seen.requires_grad


def test_rotary_attention_does_not_know_where_it_stands():
    module, x = self_attention(rotary=True), states(2, 4)
    rotary, plain = coordinates(position="rotary"), self_attention()
    plain.load_state_dict(module.state_dict())

    def at(first, stretch=1):
        where = first + stretch * torch.arange(4).unsqueeze(0)
        return module(x, context(rotary=rotary.position(where).rotary))

    torch.testing.assert_close(at(0), at(31), atol=1e-5, rtol=0)
    assert (at(0) - at(0, stretch=3)).abs().max() > 1e-3
    assert (at(0) - plain(x, context())).abs().max() > 1e-3


def test_attention_dropout_only_while_training():
    module, x = self_attention(dropout=0.5), states(2, 6)
    assert torch.equal(module(x, context()), module(x, context()))
    module.train()
    assert not torch.equal(module(x, context()), module(x, context()))
