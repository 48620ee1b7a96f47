"""The recurrent transition function, applied after attention (paper, section 2.1).

``feed_forward``: ``ReLU(x W1 + b1) W2 + b2`` at each position. `models/convolution.py` has the other of the paper's, a
separable convolution.

A transition is a module ``Transition(sizes, config, causal=...)``. It is called with states, the context of the call
and the slot of the block application. An attribute ``pointwise`` that is True promises that positions do not interact.
"""

import torch
from torch import nn

from universal_transformer.axes import Vectors
from universal_transformer.nn.context import Context, Number
from universal_transformer.nn.step_config import Sizes, TransitionConfig


def relu(states: Vectors) -> Vectors:
    """ReLU, in place without gradients: with them a backward hook of the map before does not allow it."""
    return torch.relu(states) if states.requires_grad else torch.relu_(states)


class FeedForward(nn.Module):
    """``Dropout(ReLU(x W1 + b1)) W2 + b2``."""

    pointwise = True

    def __init__(self, sizes: Sizes, config: TransitionConfig, *, causal: bool = False) -> None:
        super().__init__()
        del causal  # positions do not interact
        self.inner = nn.Linear(sizes.width, sizes.filter_width)
        self.outer = nn.Linear(sizes.filter_width, sizes.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Vectors, context: Context, *, slot: Number = 0) -> Vectors:
        del context, slot
        return self.outer(self.dropout(relu(self.inner(states))))
