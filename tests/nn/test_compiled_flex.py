"""FlexAttention compiled, as a GPU has it. Run without the shape checks, which the compiler cannot trace."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention import flex_attention

from small import WIDTH, go, right_padding, small_recurrence
from universal_transformer.nn import worth
from universal_transformer.nn.ragged import Layout

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore:The .grad attribute"
    ),  # the compiler's own
]


def compiled(flex_through, backend, *, dynamic=True):
    """FlexAttention goes through a compiler on the CPU; gives what counts the programs made."""
    counter = CompileCounterWithBackend(backend)
    torch._dynamo.reset()
    program = torch.compile(flex_attention.flex_attention, dynamic=dynamic, fullgraph=True, backend=counter)
    flex_through(program)
    return counter


def parts(layout, *, heads, head):
    """Random queries, keys and values."""
    query = torch.randn(len(layout.index), heads * head, requires_grad=True)
    key, value = torch.randn(len(layout.counts), layout.length + layout.stored, 2, heads, head).unbind(2)
    return query, key.transpose(1, 2), value.transpose(1, 2)


def test_few_programs_serve_all_lengths(flex_through):
    """One with a mask and one without, for the way there and back, and alone."""
    counter = compiled(flex_through, "eager")
    for length in (300, 260, 340, 451):
        running = torch.rand(3, length) < 0.9
        layout = Layout.of(running, counts=running.sum(1).tolist(), stored=length % 7, flexes=True)
        query, key, value = parts(layout, heads=2, head=16)
        seen = right_padding((length, 90, 10), key.shape[2]).logical_not()[:, None, None, :]
        for learns in (False, True):
            with torch.set_grad_enabled(learns):
                for mask, causal in ((None, False), (None, True), (seen, True)):
                    layout.attend(query, key, value, mask=mask, causal=causal)
        assert counter.frame_count == 4


def test_a_recurrence_is_the_masked_one(flex_through, monkeypatch):
    """The way there and back, and what a `Recall` keeps for it, are followed by the compiler too."""
    counter, found = compiled(flex_through, "aot_eager"), []
    monkeypatch.setattr(worth, "RECALLS", 1)
    module = small_recurrence(decoder=True, cross_attention=True, norm="pre", halting=True, max_steps=9)
    states, source = torch.randn(4, 120, WIDTH).double(), torch.randn(4, 129, WIDTH).double()
    for form in ("flex", "masked"):
        module.form = form
        output, trace = go(
            module, states, source=source, source_padding=right_padding((129, 33, 50, 80), 129)
        )
        total = output.sin().sum() + trace.ponder_cost()
        found.append([output, *torch.autograd.grad(total, [*module.parameters()])])
    assert counter.frame_count
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@torch.inference_mode()  # where the way back is not prepared
def test_a_kernel_that_skips_blocks_finds_the_same(flex_through):
    """The one that a compiler makes for a CPU looks at the blocks it is told of and at no others."""
    compiled(
        flex_through, "inductor", dynamic=False
    )  # torch 2.13 misnames the eleventh size of such a kernel
    running = torch.rand(4, 400) < torch.tensor((0.7, 0.0, 1.0, 0.02)).unsqueeze(1)
    layout = Layout.of(running, counts=running.sum(1).tolist(), stored=17, flexes=True)
    query, key, value = parts(layout, heads=2, head=16)
    assert layout._blocks(417, mask=None, causal=False).full_kv_num_blocks.any()
    for mask in (None, ~right_padding((400, 3, 200, 10), 417)[:, None, None, :]):
        for causal in (False, True):
            ours = layout.attend(query, key, value, mask=mask, causal=causal)
            padded = layout._padded(query, key, value, mask=mask, causal=causal, dropout=0.0)
            torch.testing.assert_close(ours, padded, rtol=1e-5, atol=1e-5)
