"""One block of a step: attention, then transition, each with its residual, dropout and LayerNorm.

``norm="post"`` (paper, equations 4 and 5): ``A = LayerNorm(X + Dropout(SelfAttention(X)))``, then
``H = LayerNorm(A + Dropout(Transition(A)))``; a decoder attends to the encoder's output in between.
``norm="pre"`` (tensor2tensor): each sub-layer is ``x + Dropout(f(LayerNorm(x)))``.
``norm="deep"`` (DeepNorm, Wang et al. 2022): ``LayerNorm(α x + Dropout(f(x)))``, see `residual_scale`.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from universal_transformer.axes import Bool, Float, States, Tensor
from universal_transformer.nn.attention import CrossAttention, ProjectedSource, SelfAttention
from universal_transformer.nn.cache import LayerCache, OtherPositions
from universal_transformer.nn.config import (
    TRANSITIONS,
    AttentionConfig,
    Sizes,
    StepConfig,
    TransitionConfig,
    load_object,
)
from universal_transformer.nn.context import AttentionRecord


def residual_scale(*, num_sublayers: int) -> float:
    """Return DeepNorm's ``α = n^(1/4)``, where n counts all applications of sub-layers over the depth of training.

    The values, outputs and transitions begin smaller, by ``β = (4 n)^(-1/4) = α^-1 / √2`` (`models.initialise`).

    Wang et al. 2022, table 1: ``n = 2 N`` of an encoder or a decoder alone with N layers, and ``n = 3 M`` of the
    decoder of an encoder-decoder with M layers. For the encoder of an encoder-decoder the paper has
    ``α = 0.81 (N^4 M)^(1/16)`` and ``β = 0.87 (N^4 M)^(-1/16)``; this model uses the constants of an encoder alone
    there too.
    """
    return float(num_sublayers**0.25)


class Sublayer(nn.Module):
    """Residual, dropout and LayerNorm around a function of the states (decision D6: where the norm stands)."""

    def __init__(self, width: int, config: StepConfig, *, scale: float = 1.0) -> None:
        super().__init__()
        self.post, self.scale = config.norm != "pre", scale
        self.norm = nn.LayerNorm(width, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        states: Float[Tensor, "*rows width"],
        function: Callable[[Float[Tensor, "*rows width"]], Float[Tensor, "*rows width"]],
        *,
        base: Float[Tensor, "*rows width"] | None = None,
    ) -> Float[Tensor, "*rows width"]:
        """``base``: what the function's value is added to, by default ``states``."""
        base = states if base is None else base
        if self.post:
            return self.norm(self.residual(base) + self.dropout(function(states)))
        return base + self.dropout(function(self.norm(states)))

    def residual(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """``α x``; after post-norm ``x`` itself."""
        return states if self.scale == 1.0 else self.scale * states


class Substitutes(NamedTuple):
    """States that a part of a block uses instead of those that the block is called with."""

    shown: States | None = None  # what others see: keys and values of self-attention are computed from them
    residual: States | None = None  # what self-attention is added to (decision D5)


NO_SUBSTITUTES = Substitutes()


class Block(nn.Module):
    """Self-attention, attention to a source (``cross_attention``), transition.

    ``zero_padding``: the transition gives 0 at padding (tensor2tensor's pad remover). ``scale``: α of DeepNorm.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        step: StepConfig | None = None,
        attention: AttentionConfig | None = None,
        transition: TransitionConfig | None = None,
        decoder: bool = False,
        cross_attention: bool = False,
        zero_padding: bool = False,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        step = StepConfig() if step is None else step
        attention = AttentionConfig() if attention is None else attention
        transition = TransitionConfig() if transition is None else transition
        self.attention = SelfAttention(sizes, attention)
        self.scale = scale
        self.after_attention = Sublayer(sizes.width, step, scale=scale)
        self.cross_attention = self.after_cross_attention = None
        if cross_attention:
            self.cross_attention = CrossAttention(sizes, attention)
            self.after_cross_attention = Sublayer(sizes.width, step, scale=scale)
        made = load_object(TRANSITIONS[transition.kind])
        self.transition: nn.Module = made(sizes, transition, causal=decoder)
        self.zero_padding = zero_padding
        self.after_transition = Sublayer(sizes.width, step, scale=scale)

    def forward(
        self,
        states: States,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        rotary: Float[Tensor, "2 rows 1 position half"] | None = None,
        padding: Bool[Tensor, "batch stored"] | None = None,
        source: ProjectedSource | None = None,
        cache: OtherPositions | None = None,
        record: AttentionRecord | None = None,
        instead: Substitutes = NO_SUBSTITUTES,
    ) -> States:
        """With post-norm ``A = LN(X + D(SelfAttention(X)))``, ``C = LN(A + D(CrossAttention(A, source)))`` where there
        is a source, else ``C = A``, and ``H = LN(C + D(Transition(C)))``; X: ``states``, D: dropout, LN: LayerNorm.

        ``mask``, True where a query may attend, broadcasts to ``[batch, 1, query, key]``; ``causal`` is the mask of
        equally many queries and keys. ``rotary``: cosines and sines of the positions, as of
        :attr:`~universal_transformer.nn.coordinates.PositionEncoding.rotary`. ``source``: from
        :meth:`~universal_transformer.nn.attention.CrossAttention.project_source`, keys and values
        ``[batch, heads, source, head]``. A transition of convolutions sets positions in ``padding`` to 0 before each
        convolution; with ``zero_padding`` the result of the transition is 0 there. With ``cache``, ``padding`` covers
        the stored positions too. ``record`` receives the attention weights.
        """
        shown = instead.shown
        if shown is not None and not self.after_attention.post:
            shown = self.after_attention.norm(shown)
        weights = None if record is None else record.self_attention
        states = self.after_attention(
            states,
            lambda x: self.attention(
                x, mask=mask, causal=causal, rotary=rotary, cache=cache, record=weights, shown=shown
            ),
            base=instead.residual,
        )
        if self.cross_attention is not None and self.after_cross_attention is not None and source is not None:
            attention, source_weights = (
                self.cross_attention,
                None if record is None else record.cross_attention,
            )
            states = self.after_cross_attention(
                states, lambda x: attention(x, source=source, rotary=rotary, record=source_weights)
            )
        stored = cache if isinstance(cache, LayerCache) else None
        return self.after_transition(states, lambda x: self._transition(x, padding=padding, cache=stored))

    def _transition(
        self, states: States, *, padding: Bool[Tensor, "batch stored"] | None, cache: LayerCache | None
    ) -> States:
        result = self.transition(states, padding=padding, cache=cache)
        if self.zero_padding and padding is not None:
            return result.masked_fill(padding[:, -states.shape[1] :].unsqueeze(-1), 0.0)
        return result
