"""The transition of separable convolutions over the sequence (paper, section 2.1; widths of tensor2tensor)."""

from torch import nn
from torch.nn.functional import pad

from universal_transformer.axes import Float, States, Tensor
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
        filtered = self.depthwise(pad(states.transpose(1, 2), self.reach))
        return self.pointwise(filtered.transpose(1, 2))


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
        hidden = self.dropout(relu(self.first(states)))
        if blank is not None:
            hidden = hidden.masked_fill(blank, 0.0)
        return self.second(hidden)[:, -new:]
