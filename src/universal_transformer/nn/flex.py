"""Attention of running rows over the keys of their own sequences, all in one call of FlexAttention (Dong et al. 2024).

Rows stand one behind another, and so do the keys of all sequences: row ``i`` sees the keys ``first[i] … last[i]``. Both
grow with ``i``, so what a block of rows may see is one run of blocks of keys, known without a look at single pairs:
``first`` of its first row to ``last`` of its last row. Those between ``first`` of its last row and ``last`` of its
first row are seen by all of its rows.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from universal_transformer.axes import Bool, Float, Int, Tensor

Rows = Float[Tensor, "row width"]
Keys = Float[Tensor, "batch heads key head"]

BLOCK = 128
"""Rows, and keys, of a block."""
LEAST = BLOCK
"""Mean rows a sequence from which it is used: a block of rows looks at the keys of every sequence it has a part of."""
NARROWEST = 16
"""Channels of a head that its kernels need."""
VARIANTS = 64
"""Programs kept: with and without a mask, with and without gradients, for each width and type."""
EAGER = False
"""Whether other devices than a GPU use it, where it is not compiled: right, slow, and made for tests."""


def serves(query: Rows, keys: Keys, *, sequences: int, dropout: float) -> bool:
    """Whether FlexAttention can do it and need not look at much in vain, ``sequences`` of them having queries.

    It knows no dropout, and on a GPU neither float64 nor narrow heads.
    """
    if dropout or torch.compiler.is_compiling():
        return False
    if query.device.type != "cuda":
        return EAGER
    enough = len(query) >= LEAST * sequences and keys.shape[3] >= NARROWEST
    return enough and query.dtype != torch.float64


@cache
def kernel(kind: str) -> Callable[..., Any]:
    """FlexAttention on devices of a kind; for a GPU it is compiled, once for all lengths.

    Not compiled it would hold all scores, so that it rather fails than is not compiled.
    """
    if kind != "cuda":
        return flex_attention
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


def spans(
    sequence: Int[Tensor, "row"],
    position: Int[Tensor, "row"] | None,
    *,
    keys: int,
    mask: Bool[Tensor, "batch 1 1 key"] | None,
) -> tuple[Int[Tensor, "row"], Int[Tensor, "row"]]:
    """``first`` and ``last`` of each row: its sequence has ``keys`` keys, or those up to ``position`` and no further.

    What stands behind the last key that ``mask`` shows is left out too.
    """
    first = sequence * keys
    last = first + (keys - 1 if position is None else position)
    if mask is not None:
        end = keys - 1 - mask.view(-1, keys).flip(1).int().argmax(1)
        last = torch.minimum(last, first + end.index_select(0, sequence))
    return first.int(), last.int()


def blocks(
    first: Int[Tensor, "row"],
    last: Int[Tensor, "row"],
    *,
    keys: int,
    visible: Bool[Tensor, "key"] | None,
) -> BlockMask:
    """Which of all ``keys`` each row sees: ``first … last``, as far as they are ``visible``.

    A GPU is not waited for. ``rows / 128 * keys / 128`` numbers are kept a few times.
    """
    rows, columns = len(first), -(-keys // BLOCK)
    start = torch.arange(0, rows, BLOCK, device=first.device)
    end = (start + (BLOCK - 1)).clamp(max=rows - 1)
    low, high = first[start] // BLOCK, last[end] // BLOCK + 1
    whole, until = (first[end] + (BLOCK - 1)) // BLOCK, (last[start] + 1) // BLOCK
    full = (until - whole).clamp(min=0) if visible is None else torch.zeros_like(whole)
    column = torch.arange(columns, device=first.device, dtype=torch.int32)
    index = low.unsqueeze(1) + column
    index = index + full.unsqueeze(1) * (index >= whole.unsqueeze(1))
    inner = whole.unsqueeze(1) + column
    return BlockMask.from_kv_blocks(
        (high - low - full)[None, None],
        (index % columns)[None, None],
        full[None, None],
        (inner % columns)[None, None],
        BLOCK_SIZE=BLOCK,
        mask_mod=_sees(first, last, visible),
        seq_lengths=(rows, keys),
        compute_q_blocks=not torch.is_inference_mode_enabled(),  # the way back alone asks for them
    )


def _sees(first: Tensor, last: Tensor, visible: Tensor | None) -> Callable[..., Tensor]:
    """Whether a row sees a key. Lambdas, for compilers to follow: what checks shapes in tests would be in their way."""
    if visible is None:
        return lambda _batch, _head, row, key: (first[row] <= key) & (key <= last[row])
    return lambda _batch, _head, row, key: (first[row] <= key) & (key <= last[row]) & visible[key]


def attend(query: Rows, keys: Keys, values: Keys, *, seen: BlockMask) -> Rows:
    """``softmax(Q K^T / sqrt(head)) V`` of each row over what it sees of all sequences' keys.

    Keys are not copied where those of a position, all heads, lie side by side.
    """
    heads, head = keys.shape[1], keys.shape[3]
    asked = query.view(1, -1, heads, head).transpose(1, 2)
    key, value = (
        part.to(query.dtype).transpose(1, 2).reshape(1, -1, heads, head).transpose(1, 2)
        for part in (keys, values)
    )
    with torch._dynamo.config.patch(recompile_limit=VARIANTS):
        result: Tensor = kernel(query.device.type)(asked, key, value, block_mask=seen)
    return result.transpose(1, 2).reshape(query.shape)
