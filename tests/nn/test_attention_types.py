"""Attention of 16-bit numbers with gradients on a CPU is that of float32, rounded."""

import pytest
import torch

from universal_transformer.nn.attention import attend


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1, 700), (2, 5, 5), (2, 3, 40), (1, 600, 600)])
@pytest.mark.parametrize("autocast", [False, True])
def test_trained_attention_in_16_bits_on_a_cpu_is_that_of_float32_rounded(cast, shape, autocast):
    batch, asked, stored = shape
    query, key, value = (torch.randn(batch, 2, n, 8).to(cast).requires_grad_() for n in (asked, stored, stored))
    direction = torch.randn(batch, 2, asked, 8)
    exact = [each.detach().float().requires_grad_() for each in (query, key, value)]
    causal = asked == stored
    with torch.autocast("cpu", dtype=cast, enabled=autocast):
        found = attend(query, key, value, causal=causal)
    expected = attend(*exact, causal=causal)
    assert torch.equal(found, expected.to(cast))
    with torch.no_grad():
        torch.testing.assert_close(attend(query, key, value, causal=causal), found, atol=2e-2, rtol=2e-2)
    slopes = torch.autograd.grad(found, [query, key, value], direction.to(cast))
    wanted = torch.autograd.grad(expected, exact, direction.to(cast).float())
    for ours, theirs in zip(slopes, wanted, strict=True):
        assert torch.equal(ours, theirs.to(cast))
