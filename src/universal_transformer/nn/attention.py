"""Multi-head scaled dot-product attention.

``Attention(Q, K, V) = softmax(Q K^T / sqrt(d / k)) V`` for each of ``k`` heads, heads concatenated and projected
(Vaswani et al. 2017, section 3.2; Universal Transformer, equations 2 and 3). Masks are ``True`` where a query may
attend.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention

from universal_transformer.axes import Bool, Float, Heads, Int, Padding, States, Tensor, Weights
from universal_transformer.nn.cache import OtherPositions
from universal_transformer.nn.config import AttentionConfig, Sizes
from universal_transformer.nn.coordinates import rotate


def split_heads(states: States, *, num_heads: int) -> Heads:
    """``[batch, position, width]`` to ``[batch, heads, position, width / heads]``."""
    return states.view(*states.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(heads: Heads) -> States:
    """The inverse of :func:`split_heads`."""
    return heads.transpose(1, 2).flatten(-2)


def key_mask(padding: Bool[Tensor, "batch key"]) -> Bool[Tensor, "batch 1 1 key"]:
    """Keys that may be attended to. A sequence of padding only attends to itself, so that no softmax is empty."""
    visible = ~padding
    visible = visible | ~visible.any(dim=1, keepdim=True)
    return visible[:, None, None, :]


def causal_mask(
    query_index: Int[Tensor, "#batch query"],
    *,
    num_keys: int,
    padding: Bool[Tensor, "batch key"] | None = None,
) -> Bool[Tensor, "#batch 1 query key"]:
    """Queries attend to keys that are stored no later than themselves and are not padding; always to themselves."""
    stored = torch.arange(num_keys, device=query_index.device)
    mask = stored <= query_index.unsqueeze(-1)
    if padding is not None:
        mask = (mask & ~padding[:, None, :]) | (stored == query_index.unsqueeze(-1))
    return mask.unsqueeze(1)


def self_mask(
    new: int,
    *,
    decoder: bool,
    stored: int | None,
    padding: Padding | None,
    cached_padding: Bool[Tensor, "batch stored"] | None,
    device: torch.device,
) -> tuple[Bool[Tensor, "..."] | None, bool]:
    """The mask of ``new`` positions, or None and whether the plain causal mask is meant.

    ``stored``: how many positions a cache holds before them, None without one; ``cached_padding`` covers both.
    """
    if not decoder:
        return (None if padding is None else key_mask(padding)), False
    if stored is None and padding is not None:
        left = padding[:, 0].any()  # later positions would attend to it
        if torch.compiler.is_exporting():
            cached_padding = padding & left
        elif bool(left):
            cached_padding = padding
    before = stored or 0
    if cached_padding is None and (before == 0 or new == 1):
        return None, new > 1
    index = torch.arange(before, before + new, device=device).unsqueeze(0)
    return causal_mask(index, num_keys=before + new, padding=cached_padding), False


def query_factor(sizes: Sizes, config: AttentionConfig) -> float:
    """What queries are multiplied by before scores are divided by ``sqrt(d / k)`` (decision D18).

    ``1 / sqrt(k)`` where the divisor is to be ``sqrt(d)``, as the equation of attention is printed; else 1.
    """
    return sizes.num_heads**-0.5 if config.scale == "width" else 1.0


def attention_weights(
    query: Heads,
    key: Float[Tensor, "batch heads key head"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
) -> Weights:
    """The softmax itself, for plots; :func:`attend` does not compute it explicitly."""
    logits = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if causal:
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return logits.softmax(dim=-1)


def attend(
    query: Heads,
    key: Float[Tensor, "batch heads key head"],
    value: Float[Tensor, "batch heads key head"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Heads:
    """``softmax(Q K^T / sqrt(head)) V``. ``causal``: the mask of equally many queries and keys."""
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal)


class ProjectedSource(NamedTuple):
    """Keys and values of the encoder's output, projected once: they are the same at every step."""

    key: Float[Tensor, "batch heads source head"]
    value: Float[Tensor, "batch heads source head"]
    mask: Bool[Tensor, "batch 1 1 source"] | None


class SelfAttention(nn.Module):
    """Attention over the sequence itself."""

    kernel: Callable[..., Heads] = staticmethod(attend)
    """The function that computes it."""

    def __init__(self, sizes: Sizes, config: AttentionConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout, self.factor = sizes.num_heads, config.dropout, query_factor(sizes, config)
        self.query_key_value = nn.Linear(sizes.width, 3 * sizes.width, bias=config.bias)
        self.output = nn.Linear(sizes.width, sizes.width, bias=config.bias)

    def forward(
        self,
        states: States,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        rotary: Float[Tensor, "2 rows 1 position half"] | None = None,
        cache: OtherPositions | None = None,
        record: list[Tensor] | None = None,
        shown: States | None = None,
    ) -> States:
        """``Concat_k(softmax(Q_k K_k^T / sqrt(d / k)) V_k) W_O`` with ``[Q; K; V] = X W_QKV``; ``X`` are ``states``.

        ``mask``, True where a query may attend, broadcasts to ``[batch, heads, query, key]``; ``causal`` is the mask of
        equally many queries and keys. ``rotary``: cosines and sines by which queries and keys are rotated. ``shown``:
        what keys and values are computed from, by default ``states`` as the queries.

        With ``cache``, keys and values of positions that are not in this call are attended to as well: those of
        earlier calls come first, and those of this call are stored.

        ``record`` receives the attention weights (the explicit softmax, no gradient).
        """
        parts = self.query_key_value(states).chunk(3, dim=-1)
        if shown is not None:
            parts = parts[0], *self.query_key_value(shown).chunk(3, dim=-1)[1:]
        query, key, value = (split_heads(part, num_heads=self.num_heads) for part in parts)
        if self.factor != 1.0:
            query = query * self.factor
        if rotary is not None:
            query, key = rotate(query, rotary=rotary), rotate(key, rotary=rotary)
        if cache is not None:
            key, value = cache.append(key, value)
        if record is not None:
            record.append(attention_weights(query.detach(), key.detach(), mask=mask, causal=causal))
        dropout = self.dropout if self.training else 0.0
        mixed = self.kernel(query, key, value, mask=mask, causal=causal, dropout=dropout)
        return self.output(merge_heads(mixed))


class CrossAttention(nn.Module):
    """Attention of the decoder over the encoder's final states.

    ``config.rotary_source``: queries and keys are rotated by their positions, so that attention to an equal position
    depends on the distance only. ``config.source_sink``: one more key, of zeros with a learned value, after the
    source, for queries that match nothing there (decision D13).
    """

    kernel: Callable[..., Heads] = staticmethod(attend)
    """The function that computes it."""

    def __init__(self, sizes: Sizes, config: AttentionConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout, self.rotary = sizes.num_heads, config.dropout, config.rotary_source
        self.factor = query_factor(sizes, config)
        self.sink = nn.Parameter(torch.zeros(sizes.width)) if config.source_sink else None
        self.query = nn.Linear(sizes.width, sizes.width, bias=config.bias)
        self.key_value = nn.Linear(sizes.width, 2 * sizes.width, bias=config.bias)
        self.output = nn.Linear(sizes.width, sizes.width, bias=config.bias)

    def project_source(
        self,
        source: States,
        *,
        padding: Padding | None = None,
        rotary: Float[Tensor, "2 rows #heads position half"] | None = None,
    ) -> ProjectedSource:
        """``[K; V] = S W_KV``, split into heads; ``S`` are the states of ``source``, ``[batch, source, width]``.

        The mask is True at positions that are not ``padding``. ``rotary``: cosines and sines of the positions of the
        source, by which keys are rotated where ``config.rotary_source``.
        """
        key, value = (split_heads(part, num_heads=self.num_heads) for part in self.key_value(source).chunk(2, dim=-1))
        if self.rotary:
            assert rotary is not None, "rotary keys need the positions of the source"
            key = rotate(key, rotary=rotary)
        mask = None if padding is None else key_mask(padding)
        if self.sink is not None:
            sink = split_heads(self.sink.to(value.dtype).expand(source.shape[0], 1, -1), num_heads=self.num_heads)
            key = torch.cat((key, torch.zeros_like(sink)), dim=2)
            value = torch.cat((value, sink), dim=2)
            mask = None if mask is None else pad(mask, (0, 1), value=True)
        return ProjectedSource(key, value, mask)

    def forward(
        self,
        states: States,
        *,
        source: ProjectedSource,
        rotary: Float[Tensor, "2 rows 1 position half"] | None = None,
        record: list[Tensor] | None = None,
    ) -> States:
        """``Concat_k(softmax(Q_k K_k^T / sqrt(d / k)) V_k) W_O`` with ``Q = X W_Q`` and K, V of ``source``; ``X`` are
        ``states``.

        ``rotary``: cosines and sines of the positions of the queries. ``record`` receives the weights, without those of
        the sink.
        """
        query = split_heads(self.query(states), num_heads=self.num_heads)
        if self.factor != 1.0:
            query = query * self.factor
        if self.rotary:
            assert rotary is not None, "rotary queries need their positions"
            query = rotate(query, rotary=rotary)
        if record is not None:
            weights = attention_weights(query.detach(), source.key.detach(), mask=source.mask)
            record.append(weights if self.sink is None else weights[..., :-1])
        dropout = self.dropout if self.training else 0.0
        mixed = self.kernel(query, source.key, source.value, mask=source.mask, dropout=dropout)
        return self.output(merge_heads(mixed))
