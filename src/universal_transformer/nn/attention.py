"""Multi-head scaled dot-product attention.

``Attention(Q, K, V) = softmax(Q K^T / sqrt(d / k)) V`` for each of ``k`` heads, heads concatenated and projected
(Vaswani et al. 2017, section 3.2; Universal Transformer, equations 2 and 3). Masks are ``True`` where a query may
attend.
"""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from universal_transformer.axes import Bool, Float, Heads, Padding, States, Tensor, Vectors, Weights
from universal_transformer.nn.context import Angles, Context, Number, PositionEncoding, ProjectedSource, key_mask
from universal_transformer.nn.step_config import AttentionConfig, Sizes

Keys = Float[Tensor, "batch key_heads key head"]


def split_heads(states: States, *, num_heads: int) -> Heads:
    """``[batch, position, width]`` to ``[batch, heads, position, width / heads]``."""
    return states.view(*states.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(heads: Heads) -> States:
    """The inverse of :func:`split_heads`."""
    return heads.transpose(1, 2).flatten(-2)


def attention_weights(
    query: Heads, key: Keys, *, mask: Bool[Tensor, "..."] | None = None, causal: bool = False
) -> Weights:
    """The softmax itself, for plots; :func:`attend` does not compute it explicitly."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    logits = (query / query.shape[-1] ** 0.5) @ key.transpose(-2, -1)
    if causal:
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return logits.softmax(dim=-1)


def attend(
    query: Heads,
    key: Keys,
    value: Keys,
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Heads:
    """``softmax(Q K^T / sqrt(head)) V``. ``causal``: the mask of equally many queries and keys. Where there are fewer
    heads of keys than of queries, equally many neighbouring heads of queries share one.

    On a CPU 16-bit attention with gradients is computed in float32: forward and backward pass then take 0.06 to 0.35
    of the time (heads of 32 channels, 20 to 512 positions). Without gradients the times are the same.
    """
    trained = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    if trained and query.dtype.itemsize == 2 and query.device.type == "cpu" and not torch.compiler.is_compiling():
        with torch.autocast("cpu", enabled=False):  # which would convert them back to 16 bits
            exact = (part.float() for part in (query, key, value))
            return attend(*exact, mask=mask, causal=causal, dropout=dropout).to(query.dtype)
    shared = {} if key.shape[1] == query.shape[1] else {"enable_gqa": True}
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, **shared
    )


class Attention(nn.Module):
    """What both kinds of attention have: heads, and where they stand."""

    rotates: bool = False
    """Whether queries and keys are rotated by their positions (`models/positions/rotary.py`)."""

    def __init__(self, sizes: Sizes, config: AttentionConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout = sizes.num_heads, config.dropout
        self.key_heads = config.key_value_heads or sizes.num_heads
        self.key_width = sizes.width // sizes.num_heads * self.key_heads
        # with scale="width" scores are divided by sqrt(d), as the equation of attention is printed (decision D18)
        self.factor = sizes.num_heads**-0.5 if config.scale == "width" else 1.0

    @property
    def active_dropout(self) -> float:
        """The dropout of attention weights: 0 outside of training."""
        return self.dropout if self.training else 0.0

    def place(self, heads: Heads, encoding: PositionEncoding) -> Heads:
        """Queries or keys at their positions: unchanged, where positions are added to states."""
        del encoding
        return heads


class SelfAttention(Attention):
    """Attention over the sequence itself."""

    by_rows = True
    """Fast execution may compute it for running positions alone: each class says so itself, a subclass again."""

    def __init__(self, sizes: Sizes, config: AttentionConfig) -> None:
        super().__init__(sizes, config)
        self.channels = [sizes.width, self.key_width, self.key_width]
        self.query_key_value = nn.Linear(sizes.width, sum(self.channels), bias=config.bias)
        self.output = nn.Linear(sizes.width, sizes.width, bias=config.bias)

    def forward(self, states: Vectors, context: Context, *, seen: Vectors | None = None, slot: Number = 0) -> Vectors:
        """``Concat_k(softmax(Q_k K_k^T / sqrt(d / k)) V_k) W_O`` with ``[Q; K; V] = X W_QKV``; ``X`` are ``states``.

        ``seen``: what keys and values are computed from, by default ``states``. Keys and values that ``context`` stores
        from earlier calls, or gets from other processes, are attended to as well.
        """
        if context.rows is not None:
            return context.rows.attend(self, states, seen=seen, slot=slot)
        query, *parts = self.query_key_value(states).split(self.channels, dim=-1)
        if seen is not None:
            parts = self.query_key_value(seen).split(self.channels, dim=-1)[1:]
        query = split_heads(query, num_heads=self.num_heads)
        key, value = (split_heads(part, num_heads=self.key_heads) for part in parts)
        query = query if self.factor == 1.0 else query * self.factor
        query, key = self.place(query, context.encoding), self.place(key, context.encoding)
        store = context.others if context.cache is None else context.cache
        if store is not None:
            assert isinstance(slot, int), "a cache is written at one step"
            key, value = store.append(key, value, slot=slot)
        mask, causal = context.mask, context.causal
        if context.record is not None:
            weights = attention_weights(query.detach(), key.detach(), mask=mask, causal=causal)
            context.record.self_attention.append(context.record.kept(weights))
        mixed = attend(query, key, value, mask=mask, causal=causal, dropout=self.active_dropout)
        return self.output(merge_heads(mixed))


class CrossAttention(Attention):
    """Attention of the decoder over the encoder's final states."""

    by_rows = True

    def __init__(self, sizes: Sizes, config: AttentionConfig) -> None:
        super().__init__(sizes, config)
        self.query = nn.Linear(sizes.width, sizes.width, bias=config.bias)
        self.key_value = nn.Linear(sizes.width, 2 * self.key_width, bias=config.bias)
        self.output = nn.Linear(sizes.width, sizes.width, bias=config.bias)

    def project_source(
        self, source: States, *, padding: Padding | None = None, rotary: Angles | None = None
    ) -> ProjectedSource:
        """``[K; V] = S W_KV``, split into heads; ``S`` are the states of ``source``, ``[batch, source, width]``.

        The mask is True at positions that are not ``padding``. ``rotary``: cosines and sines of the positions of the
        source, where keys are rotated by them (`models/positions/rotary.py`).
        """
        del rotary
        key, value = (split_heads(part, num_heads=self.key_heads) for part in self.key_value(source).chunk(2, dim=-1))
        return ProjectedSource(key, value, None if padding is None else key_mask(padding))

    def forward(self, states: Vectors, context: Context, *, layer: int = 0) -> Vectors:
        """``Concat_k(softmax(Q_k K_k^T / sqrt(d / k)) V_k) W_O`` with ``Q = X W_Q`` and K, V of the source; ``X`` are
        ``states``.
        """
        if context.rows is not None:
            return context.rows.attend_source(self, states, layer=layer)
        assert context.source is not None, "attention to a source needs one"
        source = context.source[layer]
        query = split_heads(self.query(states), num_heads=self.num_heads)
        query = self.place(query if self.factor == 1.0 else query * self.factor, context.encoding)
        if context.record is not None:
            weights = attention_weights(query.detach(), source.key.detach(), mask=source.mask)
            context.record.cross_attention.append(context.record.kept(self.shown_weights(weights)))
        mixed = attend(query, source.key, source.value, mask=source.mask, dropout=self.active_dropout)
        return self.output(merge_heads(mixed))

    def shown_weights(self, weights: Weights) -> Float[Tensor, "batch heads query shown"]:
        """The weights that a record receives."""
        return weights
