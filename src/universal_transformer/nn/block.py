"""One block of a step: attention, then transition, each with its residual, dropout and LayerNorm.

A sub-layer f of a block with input x is ``y = after(x, f(before(x)))``; the norm decides what these are (decision D6).
In the paper (equations 4 and 5) they are ``x`` and ``LayerNorm(x + Dropout(z))``. `models/norms.py` has other norms.
"""

from collections.abc import Callable

from torch import nn

from universal_transformer.axes import States, Vectors
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.context import Context, Number
from universal_transformer.nn.step_config import StepConfig


class PostNorm(nn.Module):
    """LayerNorm after the residual sum."""

    by_rows = True
    normalise: type[nn.LayerNorm | nn.RMSNorm] = nn.LayerNorm
    closes = False
    """Whether a model of such blocks needs a norm after the last step."""
    scale = 1.0
    """α, by which the residual is multiplied."""

    def __init__(self, width: int, config: StepConfig, *, sublayers: int = 1) -> None:
        super().__init__()
        del sublayers
        self.norm = self.normalise(width, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def before(self, states: Vectors) -> Vectors:
        """What the sub-layer reads."""
        return states

    def forward(self, states: Vectors, change: Vectors) -> Vectors:
        """What the sub-layer returns, given its input and its function's value."""
        return self.norm(states + self.dropout(change))


class Block(nn.Module):
    """Self-attention, attention to a source where there is one, transition. ``norm`` makes the norm of a sub-layer."""

    by_rows = repeats = True

    def __init__(
        self,
        attention: SelfAttention,
        transition: nn.Module,
        *,
        norm: Callable[[], PostNorm],
        cross_attention: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.after_attention = attention, norm()
        self.cross_attention = cross_attention
        self.after_cross_attention = None if cross_attention is None else norm()
        self.transition, self.after_transition = transition, norm()

    def forward(
        self,
        states: Vectors,
        context: Context,
        *,
        seen: Vectors | None = None,
        residual: States | None = None,
        slot: Number = 0,
        layer: int = 0,
    ) -> Vectors:
        """With post-norm ``A = LN(X + D(SelfAttention(X)))``, ``C = LN(A + D(CrossAttention(A, source)))`` where there
        is a source, else ``C = A``, and ``H = LN(C + D(Transition(C)))``; X: ``states``, D: dropout, LN: LayerNorm.

        ``seen``: what keys and values of self-attention are computed from, where other than X. ``residual``: what
        self-attention is added to, where other than X (decision D5). With ``context.attended`` H adds the transition to
        the C of the step before, in the first step to what self-attention is added to. ``slot`` numbers the
        applications of a block in a call, ``layer`` the blocks.
        """
        norm, entered = self.after_attention, states if residual is None else residual
        shown = None if seen is None else norm.before(seen)
        mixed = self.attention(norm.before(states), context, seen=shown, slot=slot)
        states = norm(entered, mixed)
        if self.cross_attention is not None and self.after_cross_attention is not None:
            norm = self.after_cross_attention
            states = norm(states, self.cross_attention(norm.before(states), context, layer=layer))
        norm, attended = self.after_transition, states
        if context.attended is not None:
            attended, context.attended[layer] = context.attended.get(layer, entered), states
        return norm(attended, self.transition(norm.before(states), context, slot=slot))
