"""FlexAttention of running rows is the padded form, number by number, and asks for every block that holds something."""

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from small import WIDTH, cache_for, go, piecewise, right_padding, small_recurrence
from universal_transformer.nn import flex
from universal_transformer.nn.ragged import Layout

HEADS, HEAD = 2, 4


DRAWN = st.tuples(
    st.lists(st.sampled_from([0.0, 0.02, 0.5, 1.0]), min_size=2, max_size=5),  # who runs of each sequence
    st.integers(1, 200),
    st.sampled_from([0, 3, 150]),
    st.sampled_from(["none", "right", "any"]),
    st.integers(0, 1000),
)


def made(shares, length, stored, kind, seed):
    """A layout of random positions, which keys may be seen, and how many a sequence has."""
    generator = torch.Generator().manual_seed(seed)
    batch, keys, mask = len(shares), stored + length, None
    running = torch.rand(batch, length, generator=generator) < torch.tensor(shares).unsqueeze(1)
    running[0, 0] = running[1, -1] = True
    if kind == "right":
        mask = ~right_padding([1 + (7 * row) % keys for row in range(batch)], keys)
    elif kind == "any":
        mask = torch.rand(batch, keys, generator=generator) < 0.5
        mask[:, 0] = True
    layout = Layout.of(running, counts=running.sum(1).tolist(), stored=stored, flexes=True)
    return layout, None if mask is None else mask[:, None, None, :], keys


def tensors(layout, keys):
    """Queries, keys and values that ask for gradients, keys laid out position by position as a store has them."""
    rows, batch = len(layout.index), len(layout.counts)
    query = torch.randn(rows, HEADS * HEAD, dtype=torch.float64, requires_grad=True)
    both = torch.randn(batch, keys, 2, HEADS, HEAD, dtype=torch.float64, requires_grad=True)
    key, value = both.unbind(2)
    return (query, both), (query, key.transpose(1, 2), value.transpose(1, 2))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=DRAWN, causal=st.booleans())
def test_all_at_once_is_padded_is_one_by_one(drawn, causal, eager_flex):
    layout, mask, keys = made(*drawn)
    leaves, (query, key, value) = tensors(layout, keys)
    found, before = [], len(eager_flex)
    for way in (layout.attend, layout._padded, layout._one_by_one):
        result = way(query, key, value, mask=mask, causal=causal, dropout=0.0)
        found.append([result, *torch.autograd.grad(result.sin().sum(), leaves)])
    assert len(eager_flex) == before + 1
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=1e-10, atol=1e-10)


FULL = ([1.0, 1.0, 0.5], 200, 150, "none", 0)


@settings(max_examples=60)
@given(drawn=DRAWN, causal=st.booleans())
@example(drawn=FULL, causal=False)
@example(drawn=FULL, causal=True)
@example(drawn=(*FULL[:3], "any", 0), causal=False)
def test_blocks_hold_every_pair_and_full_ones_nothing_else(drawn, causal):
    layout, mask, keys = made(*drawn)
    assert drawn is not FULL or layout._blocks(keys, mask=mask, causal=causal).full_kv_num_blocks.any()
    found = layout._blocks(keys, mask=mask, causal=causal)
    rows, every = len(layout.index), len(layout.counts) * keys
    assert found.seq_lengths == (rows, every)
    pairs = create_mask(found.mask_mod, None, None, rows, every, device="cpu")[0, 0]
    dense = create_block_mask(found.mask_mod, None, None, rows, every, device="cpu")
    ours, needed = found.to_dense().bool(), dense.to_dense().bool()
    assert (ours | ~needed).all()
    if mask is None and not causal and all(layout.counts):
        assert torch.equal(ours, needed)
    for row, column in listed(found.full_kv_num_blocks, found.full_kv_indices):
        part = pairs[
            row * flex.BLOCK : (row + 1) * flex.BLOCK, column * flex.BLOCK : (column + 1) * flex.BLOCK
        ]
        assert part.all()
        assert part.shape[1] == flex.BLOCK
    partial, full = (
        listed(*each)
        for each in (
            (found.kv_num_blocks, found.kv_indices),
            (found.full_kv_num_blocks, found.full_kv_indices),
        )
    )
    assert not partial & full
    assert {(row, column) for row, column in ours[0, 0].nonzero().tolist()} == partial | full
    # and the way back looks at the same ones
    turned = [(found.q_num_blocks, found.q_indices), (found.full_q_num_blocks, found.full_q_indices)]
    assert [{(row, column) for column, row in listed(*each)} for each in turned] == [partial, full]


def listed(counts, indices):
    """Pairs of blocks; no index is out of range, whether it counts or not."""
    if counts is None:
        return set()
    assert indices.min() >= 0
    assert indices.max() < indices.shape[3]
    return {
        (row, column)
        for row, count in enumerate(counts[0, 0].tolist())
        for column in indices[0, 0, row, :count].tolist()
    }


def test_keys_position_by_position_are_not_copied(eager_flex, monkeypatch):
    given_to, kernel = [], flex.kernel("cpu")
    monkeypatch.setattr(
        flex, "kernel", lambda _: lambda *parts, **masks: (given_to.extend(parts), kernel(*parts, **masks))[1]
    )
    layout = Layout.of(torch.ones(3, 5, dtype=torch.bool), counts=[5, 5, 5], flexes=True)
    (_, both), (query, key, value) = tensors(layout, 5)
    layout.attend(query, key, value, mask=None)
    for one, other in zip(given_to, (query, both, both), strict=True):
        assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_blocks_are_made_once_a_layout(eager_flex, monkeypatch):
    made, blocks = [], flex.blocks
    monkeypatch.setattr(flex, "blocks", lambda *a, **k: (made.append(1), blocks(*a, **k))[1])
    layout = Layout.of(torch.ones(3, 5, dtype=torch.bool), counts=[5, 5, 5], flexes=True)
    masks = [
        None,
        ~right_padding((5, 2, 3), 5)[:, None, None, :],
        ~right_padding((1, 2, 3), 5)[:, None, None, :],
    ]
    for _ in range(2):
        for mask in masks:
            for causal in (False, True):
                layout.attend(*tensors(layout, 5)[1], mask=mask, causal=causal)
    assert len(eager_flex) == 12
    assert len(made) == 6


def test_what_it_cannot_do_is_padded(eager_flex, monkeypatch):
    layout = Layout.of(torch.ones(4, 5, dtype=torch.bool), counts=[5] * 4, flexes=True)
    parts = tensors(layout, 5)[1]
    layout.attend(*parts, mask=None, dropout=0.1)
    Layout.of(torch.ones(4, 5, dtype=torch.bool), counts=[5] * 4).attend(*parts, mask=None)
    monkeypatch.setattr(flex, "EAGER", False)
    layout.attend(*parts, mask=None)
    assert not eager_flex


@pytest.mark.parametrize("learn", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("decoder", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "choices", [{}, {"checkpointed": True}, {"output": "final", "scope": "sequence"}], ids=str
)
def test_a_recurrence_is_the_masked_one(choices, norm, decoder, learn, eager_flex):
    module = small_recurrence(
        decoder=decoder, cross_attention=decoder, norm=norm, halting=True, max_steps=9, **choices
    )
    states, padding = torch.randn(4, 6, WIDTH, dtype=torch.float64), right_padding((6, 3, 5, 1), 6)
    source = torch.randn(4, 3, WIDTH, dtype=torch.float64) if decoder else None
    hidden, found = right_padding((3, 1, 2, 3), 3) if decoder else None, []
    for form in ("flex", "masked"):
        module.form = form
        inputs = [None if x is None else x.clone().requires_grad_(learn) for x in (states, source)]
        with torch.set_grad_enabled(learn):
            output, trace = go(module, inputs[0], padding=padding, source=inputs[1], source_padding=hidden)
        output = output.masked_fill(padding.unsqueeze(-1), 0.0)
        parts = [output, trace.steps, trace.remainder, trace.probability, trace.weight]
        if learn:
            leaves = [*module.parameters(), *(x for x in inputs if x is not None)]
            total = output.sin().sum() + trace.ponder_cost()
            parts += [x for x in torch.autograd.grad(total, leaves, allow_unused=True) if x is not None]
        found.append(parts)
        assert (len(eager_flex) > 0) == (form == "flex" or len(found) == 2)
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_behind_a_cache_too(eager_flex):
    module, found = small_recurrence(decoder=True, halting=True, max_steps=9), []
    states = torch.randn(4, 9, WIDTH, dtype=torch.float64)
    for form in ("flex", "masked"):
        module.form = form
        found.append(piecewise(module, states, (4, 1, 4), cache=cache_for(module, batch=4, capacity=9)))
    assert eager_flex
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
