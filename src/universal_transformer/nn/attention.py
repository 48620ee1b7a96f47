"""Multi-head scaled dot-product attention.

``Attention(Q, K, V) = softmax(Q K^T / sqrt(d / k)) V`` for each of ``k`` heads, heads concatenated and projected
(Vaswani et al. 2017, section 3.2; Universal Transformer, equations 2 and 3). Masks are ``True`` where a query may look.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import pad, scaled_dot_product_attention

from universal_transformer.axes import Bool, Float, Heads, Int, Padding, States, Tensor, Weights
from universal_transformer.nn.cache import LayerCache
from universal_transformer.nn.coordinates import rotate
from universal_transformer.nn.straight import is_straight


def split_heads(states: States, *, num_heads: int) -> Heads:
    """``[batch, position, width]`` to ``[batch, heads, position, width / heads]``."""
    return states.view(*states.shape[:2], num_heads, -1).transpose(1, 2)


def merge_heads(heads: Heads) -> States:
    """The inverse of :func:`split_heads`."""
    return heads.transpose(1, 2).flatten(-2)


def key_mask(padding: Bool[Tensor, "batch key"]) -> Bool[Tensor, "batch 1 1 key"]:
    """Which keys may be looked at. A sequence of nothing but padding looks at itself, so that no softmax is empty."""
    visible = ~padding
    visible = visible | ~visible.any(dim=1, keepdim=True)
    return visible[:, None, None, :]


def causal_mask(
    query_index: Int[Tensor, "#batch query"],
    *,
    num_keys: int,
    padding: Bool[Tensor, "batch key"] | None = None,
) -> Bool[Tensor, "#batch 1 query key"]:
    """Queries look at keys that are stored no later than themselves and are not padding; always at themselves."""
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
    """What ``new`` positions may see of themselves, and whether the plain causal mask will do (then there is none).

    ``stored``: how many stand in front of them in a cache, None without one; ``cached_padding`` covers both.
    """
    if not decoder:
        return (None if padding is None else key_mask(padding)), False
    if stored is None and padding is not None and not is_straight() and bool(padding[:, 0].any()):
        cached_padding = padding  # padding on the left: later positions would see it
    before = stored or 0
    if cached_padding is None and (before == 0 or new == 1):
        return None, new > 1
    index = torch.arange(before, before + new, device=device).unsqueeze(0)
    return causal_mask(index, num_keys=before + new, padding=cached_padding), False


def attention_weights(
    query: Heads,
    key: Float[Tensor, "batch heads key head"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
) -> Weights:
    """The softmax itself, for plots; :func:`attend` never forms it."""
    logits = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if causal:
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return logits.softmax(dim=-1)


SHORT = 512
"""Keys up to which attention in float32 is faster on a CPU than in 16 bits, forward and backward."""


def widens(query: Heads, key: Float[Tensor, "batch heads key head"]) -> bool:
    """Whether 16 bits are attended in float32: on a CPU, with one query or few keys, where its kernels are faster."""
    if query.device.type != "cpu" or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    if query.shape[2] == 1:
        return True
    return not torch.compiler.is_compiling() and max(query.shape[2], key.shape[2]) <= SHORT


def attend(
    query: Heads,
    key: Float[Tensor, "batch heads key head"],
    value: Float[Tensor, "batch heads key head"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Heads:
    """``softmax(Q K^T / sqrt(head)) V``. ``causal`` is the mask of equally many queries and keys."""
    if not widens(query, key):
        return scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal
        )
    wide = (query.float(), key.float(), value.float())
    with torch.autocast("cpu", enabled=False):  # which would make them narrow again
        mixed = scaled_dot_product_attention(*wide, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return mixed.to(query.dtype)


class Memory(NamedTuple):
    """What a decoder looks at: keys and values of the source, projected once for all steps."""

    key: Float[Tensor, "batch heads source head"]
    value: Float[Tensor, "batch heads source head"]
    mask: Bool[Tensor, "batch 1 1 source"] | None

    def contiguous(self) -> "Memory":
        """The same, head by head in memory: worth it where few queries look many times."""
        return Memory(self.key.contiguous(), self.value.contiguous(), self.mask)


class SelfAttention(nn.Module):
    """Attention over the sequence itself."""

    def __init__(self, width: int, *, num_heads: int, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.query_key_value = nn.Linear(width, 3 * width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def query_map(self) -> tuple[Float[Tensor, "width width"], Float[Tensor, "width"] | None]:
        """``W_Q`` and its bias, taken out once for many steps, so that their gradients are put back once."""
        linear, width = self.query_key_value, self.query_key_value.in_features
        return linear.weight[:width], None if linear.bias is None else linear.bias[:width]

    def project_rows(
        self, rows: Float[Tensor, "row width"]
    ) -> tuple[Float[Tensor, "row width"], Float[Tensor, "row width"], Float[Tensor, "row width"]]:
        """``x W_Q``, ``x W_K`` and ``x W_V`` of single rows."""
        query, key, value = self.query_key_value(rows).chunk(3, dim=-1)
        return query, key, value

    def project(self, states: States) -> tuple[Heads, Heads, Heads]:
        """Queries, keys and values of ``states``."""
        query, key, value = self.query_key_value(states).chunk(3, dim=-1)
        return (
            split_heads(query, num_heads=self.num_heads),
            split_heads(key, num_heads=self.num_heads),
            split_heads(value, num_heads=self.num_heads),
        )

    def forward(
        self,
        states: States,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        rotary: Float[Tensor, "2 rows 1 position half"] | None = None,
        cache: LayerCache | None = None,
        record: list[Tensor] | None = None,
    ) -> States:
        """With ``cache``, keys and values of earlier calls come first and those of this call are stored.

        ``record`` receives the attention weights (the explicit softmax, no gradient).
        """
        query, key, value = self.project(states)
        if rotary is not None:
            query, key = rotate(query, rotary=rotary), rotate(key, rotary=rotary)
        if cache is not None:
            key, value = cache.append(key, value)
        if record is not None:
            record.append(attention_weights(query.detach(), key.detach(), mask=mask, causal=causal))
        dropout = self.dropout if self.training else 0.0
        return self.output(merge_heads(attend(query, key, value, mask=mask, causal=causal, dropout=dropout)))


class CrossAttention(nn.Module):
    """Attention of the decoder over the encoder's final states.

    ``rotary``: queries and keys are turned by their positions, so that "where I stand" is found by distance alone.
    ``sink``: a key of zeros with a learned value stands behind the source, for queries that nothing there fits.
    """

    def __init__(
        self,
        width: int,
        *,
        num_heads: int,
        bias: bool = False,
        dropout: float = 0.0,
        rotary: bool = False,
        sink: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads, self.dropout, self.rotary = num_heads, dropout, rotary
        self.sink = nn.Parameter(torch.zeros(width)) if sink else None
        self.query = nn.Linear(width, width, bias=bias)
        self.key_value = nn.Linear(width, 2 * width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def remember(
        self,
        source: States,
        *,
        padding: Padding | None = None,
        rotary: Float[Tensor, "2 rows #heads position half"] | None = None,
    ) -> Memory:
        """Keys and values of ``source``: the same at every step, so computed once."""
        key, value = (
            split_heads(part, num_heads=self.num_heads) for part in self.key_value(source).chunk(2, dim=-1)
        )
        if self.rotary:
            assert rotary is not None, "rotary keys need the positions of the source"
            key = rotate(key, rotary=rotary)
        mask = None if padding is None else key_mask(padding)
        if self.sink is not None:
            nothing = split_heads(
                self.sink.to(value.dtype).expand(len(source), 1, -1), num_heads=self.num_heads
            )
            key = torch.cat((key, torch.zeros_like(nothing)), dim=2)
            value = torch.cat((value, nothing), dim=2)
            mask = None if mask is None else pad(mask, (0, 1), value=True)
        return Memory(key, value, mask)

    def forward(
        self,
        states: States,
        *,
        memory: Memory,
        rotary: Float[Tensor, "2 rows 1 position half"] | None = None,
        record: list[Tensor] | None = None,
    ) -> States:
        """``rotary``: of the positions that ask. ``record`` receives the weights, without those of the sink."""
        query = split_heads(self.query(states), num_heads=self.num_heads)
        if self.rotary:
            assert rotary is not None, "rotary queries need their positions"
            query = rotate(query, rotary=rotary)
        if record is not None:
            weights = attention_weights(query.detach(), memory.key.detach(), mask=memory.mask)
            record.append(weights if self.sink is None else weights[..., :-1])
        dropout = self.dropout if self.training else 0.0
        return self.output(
            merge_heads(attend(query, memory.key, memory.value, mask=memory.mask, dropout=dropout))
        )
