"""The transition of separable convolutions over the sequence (paper, section 2.1; widths of tensor2tensor)."""

import torch
from torch import nn
from torch.nn.functional import conv2d, pad

from universal_transformer.axes import Bool, Float, States, Tensor
from universal_transformer.nn.context import Context, Number
from universal_transformer.nn.step_config import Sizes, TransitionConfig
from universal_transformer.nn.transition import relu


class SeparableConvolution1d(nn.Module):
    """A depthwise convolution of width ``kernel``, then a pointwise one with bias; zero outside the sequence."""

    def __init__(self, width: int, out_width: int, *, kernel: int, causal: bool) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width, bias=False)
        self.pointwise = nn.Linear(width, out_width)
        self.reach = (kernel - 1, 0) if causal else (kernel // 2, kernel // 2)

    def forward(self, states: Float[Tensor, "batch position in_width"]) -> Float[Tensor, "batch position out_width"]:
        padded, weight = pad(states, (0, 0, *self.reach)), self.depthwise.weight
        if torch.compiler.is_compiling():  # a convolution would be compiled for each length
            length = states.shape[1]
            taps = (padded[:, start : start + length] * weight[:, 0, start] for start in range(weight.shape[2]))
            return self.pointwise(sum(taps, torch.zeros_like(states)))
        # an image of height 1 in channels-last order: what Conv1d computes, three to five times as fast on a CPU
        image = padded.transpose(1, 2).unsqueeze(2)
        filtered = depthwise(image, weight.unsqueeze(2))
        return self.pointwise(filtered.squeeze(2).transpose(1, 2))


def depthwise(image: Tensor, weight: Tensor) -> Tensor:
    """Each channel with its own kernel. On a CPU 16-bit convolution with gradients is computed in float32: forward and
    backward pass then take 0.4 to 0.6 of the time (kernels of 5 positions, 256 and 512 channels, one core).
    """
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else image.dtype
    if image.device.type == "cpu" and torch.is_grad_enabled() and kind.itemsize == 2:
        with torch.autocast("cpu", enabled=False):  # which would convert them back to 16 bits
            return conv2d(image.float(), weight.float(), groups=len(weight)).to(image.dtype)
    return conv2d(image, weight, groups=len(weight))


class SeparableConvolution(nn.Module):
    """``conv5(ReLU(conv3(x)))``. Padding is zeroed before each convolution; a causal one is padded on the left."""

    pointwise = False
    REACH = 6  # positions to the left that the two convolutions together see

    def __init__(self, sizes: Sizes, config: TransitionConfig, *, causal: bool = False) -> None:
        super().__init__()
        self.first = SeparableConvolution1d(sizes.width, sizes.filter_width, kernel=3, causal=causal)
        self.second = SeparableConvolution1d(sizes.filter_width, sizes.width, kernel=5, causal=causal)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: States, context: Context, *, slot: Number = 0) -> States:
        new, padding = states.shape[1], context.padding
        if context.cache is not None:
            assert isinstance(slot, int), "a cache is written at one step"
            states = context.cache.extend(states, reach=self.REACH, slot=slot)
            padding = context.stored_padding
            if padding is not None:
                padding = padding[:, -states.shape[1] :]
        blank = None if padding is None else padding.unsqueeze(-1)
        if blank is not None:
            states = states.masked_fill(blank, 0.0)
        return self.convolved(states, blank)[:, -new:]

    def convolved(self, states: States, blank: Bool[Tensor, "batch seen 1"] | None) -> States:
        """The convolutions of states that are 0 where they are ``blank``."""
        hidden = self.dropout(relu(self.first(states)))
        if blank is not None:
            hidden = hidden.masked_fill(blank, 0.0)
        result: States = self.second(hidden)
        return result


class SingleSeparableConvolution(SeparableConvolution):
    """``conv3(x)`` alone, of states that are 0 at padding (US 10,740,433 B2, claims 7 and 20)."""

    REACH = 2

    def __init__(self, sizes: Sizes, config: TransitionConfig, *, causal: bool = False) -> None:
        nn.Module.__init__(self)
        del config
        self.only = SeparableConvolution1d(sizes.width, sizes.width, kernel=3, causal=causal)

    def convolved(self, states: States, blank: Bool[Tensor, "batch seen 1"] | None) -> States:
        del blank
        result: States = self.only(states)
        return result
