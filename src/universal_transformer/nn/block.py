"""One step of the Universal Transformer: attention, then transition, each with its residual, dropout and norm.

``norm="post"`` (paper, equations 4 and 5): ``A = LayerNorm(X + Dropout(SelfAttention(X)))``, then
``H = LayerNorm(A + Dropout(Transition(A)))``; a decoder attends to the encoder's output in between.
``norm="pre"`` (tensor2tensor): each sub-layer is ``x + Dropout(f(LayerNorm(x)))``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn
from torch.nn.functional import layer_norm

from universal_transformer.axes import Bool, Float, States, Tensor
from universal_transformer.nn.attention import CrossAttention, Memory, SelfAttention
from universal_transformer.nn.cache import LayerCache
from universal_transformer.nn.recall import Recall, make
from universal_transformer.nn.transition import FeedForward, SeparableConvolution

Norm = Literal["post", "pre"]


@dataclass
class AttentionRecord:
    """Attention weights, one tensor ``[batch, heads, query, key]`` a layer application, in order."""

    self_attention: list[Tensor] = field(default_factory=list)
    cross_attention: list[Tensor] = field(default_factory=list)


def normalise(
    norm: nn.LayerNorm, states: Float[Tensor, "*rows width"], recall: Recall | None
) -> Float[Tensor, "*rows width"]:
    """``norm(states)``, promised to ``recall`` with the parameters of now: those of a functional call go with it."""
    return make(recall, layer_norm, states, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class Sublayer(nn.Module):
    """Residual, dropout and LayerNorm around a function of the states (decision D6 says where the norm stands)."""

    def __init__(self, width: int, *, norm: Norm, epsilon: float, dropout: float) -> None:
        super().__init__()
        self.post: bool = norm == "post"
        self.norm = nn.LayerNorm(width, eps=epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        states: Float[Tensor, "*rows width"],
        function: Callable[[Float[Tensor, "*rows width"]], Float[Tensor, "*rows width"]],
        recall: Recall | None = None,
    ) -> Float[Tensor, "*rows width"]:
        if self.post:
            return normalise(self.norm, states + self.dropout(function(states)), recall)
        return states + self.dropout(function(normalise(self.norm, states, recall)))


class Block(nn.Module):
    """Self-attention, attention to a memory (decoder only), transition."""

    def __init__(
        self,
        width: int,
        *,
        num_heads: int,
        filter_width: int,
        decoder: bool,
        cross_attention: bool,
        norm: Norm = "post",
        norm_epsilon: float = 1e-6,
        attention_bias: bool = False,
        transition: Literal["feed_forward", "separable_convolution"] = "feed_forward",
        zero_padding: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        transition_dropout: float = 0.0,
        rotary_source: bool = False,
        source_sink: bool = False,
    ) -> None:
        super().__init__()

        def sublayer() -> Sublayer:
            return Sublayer(width, norm=norm, epsilon=norm_epsilon, dropout=dropout)

        self.attention = SelfAttention(
            width, num_heads=num_heads, bias=attention_bias, dropout=attention_dropout
        )
        self.after_attention = sublayer()
        self.cross_attention = self.after_cross_attention = None
        if cross_attention:
            self.cross_attention = CrossAttention(
                width,
                num_heads=num_heads,
                bias=attention_bias,
                dropout=attention_dropout,
                rotary=rotary_source,
                sink=source_sink,
            )
            self.after_cross_attention = sublayer()
        self.transition: FeedForward | SeparableConvolution
        if transition == "feed_forward":
            self.transition = FeedForward(
                width, filter_width=filter_width, dropout=transition_dropout, zero_padding=zero_padding
            )
        else:
            self.transition = SeparableConvolution(
                width, filter_width=filter_width, causal=decoder, dropout=transition_dropout
            )
        self.after_transition = sublayer()

    def forward(
        self,
        states: States,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        rotary: Float[Tensor, "2 rows 1 position half"] | None = None,
        padding: Bool[Tensor, "batch stored"] | None = None,
        memory: Memory | None = None,
        cache: LayerCache | None = None,
        record: AttentionRecord | None = None,
        recall: Recall | None = None,
    ) -> States:
        """``mask``/``causal``: what self-attention may see. ``padding``: what the transition must not see.

        ``record`` receives the attention weights of this application, ``recall`` what need not be kept of it.
        """
        seen = None if record is None else record.self_attention
        states = self.after_attention(
            states,
            lambda x: self.attention(x, mask=mask, causal=causal, rotary=rotary, cache=cache, record=seen),
            recall,
        )
        if self.cross_attention is not None and self.after_cross_attention is not None and memory is not None:
            attention, looked = self.cross_attention, None if record is None else record.cross_attention
            states = self.after_cross_attention(
                states, lambda x: attention(x, memory=memory, rotary=rotary, record=looked), recall
            )
        return self.after_transition(
            states, lambda x: self.transition(x, padding=padding, cache=cache), recall
        )

    def forward_rows(
        self,
        rows: Float[Tensor, "row width"],
        *,
        attend: Callable[[Float[Tensor, "row width"]], Float[Tensor, "row width"]],
        look: Callable[[Float[Tensor, "row width"]], Float[Tensor, "row width"]] | None,
        again: Callable[..., Any] | None = None,
        recall: Recall | None = None,
    ) -> Float[Tensor, "row width"]:
        """The same for single rows, whose attention to their sequences and to the source the caller computes.

        ``again`` (of a function and its arguments) computes what comes behind self-attention once more on the way back;
        ``recall``, of all else, what costs next to nothing.
        """
        states = self.after_attention(rows, attend, recall)
        if again is not None:
            return again(self._behind, states, look)
        return self._behind(states, look, recall)

    def _behind(
        self,
        states: Float[Tensor, "row width"],
        look: Callable[[Float[Tensor, "row width"]], Float[Tensor, "row width"]] | None,
        recall: Recall | None = None,
    ) -> Float[Tensor, "row width"]:
        """What follows the attention of rows to their sequences."""
        if self.after_cross_attention is not None and look is not None:
            states = self.after_cross_attention(states, look, recall)
        return self.after_transition(states, self.transition, recall)
