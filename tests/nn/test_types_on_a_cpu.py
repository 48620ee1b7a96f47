"""Attention and convolution of 16-bit numbers with gradients on a CPU are those of float32, rounded."""

import pytest
import torch

from universal_transformer.models.convolution import depthwise
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


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_trained_convolution_in_16_bits_on_a_cpu_is_that_of_float32_rounded(cast, autocast):
    image, weight = torch.randn(2, 8, 1, 40).to(cast).requires_grad_(), torch.randn(8, 1, 1, 5).requires_grad_()
    if not autocast:
        weight = weight.detach().to(cast).requires_grad_()
    exact = [each.detach().float().requires_grad_() for each in (image, weight)]
    with torch.autocast("cpu", dtype=cast, enabled=autocast):
        found = depthwise(image, weight)
    expected = depthwise(*exact)
    assert torch.equal(found, expected.to(cast))
    with torch.no_grad(), torch.autocast("cpu", dtype=cast, enabled=autocast):
        rounded = depthwise(image, weight)
    assert rounded.dtype == cast
    torch.testing.assert_close(rounded, found.detach(), atol=5e-2, rtol=2e-2)
    direction = torch.randn_like(found)
    slopes = torch.autograd.grad(found, [image, weight], direction)
    wanted = torch.autograd.grad(expected, exact, direction.float())
    for ours, theirs in zip(slopes, wanted, strict=True):
        assert torch.equal(ours, theirs.to(ours.dtype))
