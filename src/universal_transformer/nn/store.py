"""Keys and values of all positions of a batch, in one storage that every step overwrites at the rows that ran.

While training, :class:`StoredAttention` undoes the writes on the way back, so that what is kept grows with the
positions that ran, not with all of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from universal_transformer.axes import Bool, Both, Float, Index, Rows, Tensor
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.packed import product
from universal_transformer.nn.ragged import Keys, Layout
from universal_transformer.nn.recall import Recall
from universal_transformer.nn.refresh import Kept, Refresh, read


class Write(NamedTuple):
    """What a step wrote over, to be put back."""

    at: Index
    before: Kept


class Store:
    """What running positions look at.

    :meth:`renew` says which states are new, the first time all of them; :meth:`attend` looks.
    """

    def __init__(
        self,
        attention: SelfAttention,
        refresh: Refresh,
        *,
        batch: int,
        mask: Bool[Tensor, "..."] | None,
        causal: bool,
    ) -> None:
        self.attention, self.refresh = attention, refresh
        self.batch, self.mask, self.causal = batch, mask, causal
        self.dropout = attention.dropout if attention.training else 0.0
        self.mixed = self._mixed()
        self.weight, self.bias = attention.query_map()
        self.kept: Kept | None = None
        self.new: tuple[Kept, Tensor | None] | None = None
        self.undo: list[Write | None] = []
        self.owed: Kept | None = None
        self.scratch: Tensor | None = None

    def _mixed(self) -> Float[Tensor, "step width"] | Float[Tensor, "width"] | None:
        """What the constant part of all values becomes behind the output projection.

        Dropped weights do not sum to 1: with dropout it stands among the values.
        """
        output, refresh = self.attention.output, self.refresh
        if self.dropout or refresh.part is None:
            return output.bias
        constant = refresh.part if refresh.constant is None else refresh.constant
        return torch.nn.functional.linear(constant.chunk(2, dim=-1)[1], output.weight, output.bias)

    def renew(self, index: Index | None, base: Rows, *, recall: Recall | None = None) -> None:
        """The rows ``index`` (None: all) are now at ``b``."""
        self.new = self.refresh.keep(base, recall=recall), index

    def attend(self, states: Rows, *, step: int, layout: Layout) -> Rows:
        """Self-attention of running rows."""
        query = product(states, self.weight, self.bias)
        part, shift = self.refresh.at(step), self.refresh.shift(step) if self.dropout else None
        assert self.new is not None
        (rows, variance), index = self.new
        self.new = None
        if torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad):
            apply: Callable[..., Tensor] = StoredAttention.apply
            result = apply(query, rows, variance, part, shift, index, step, self, layout)
        else:
            self.write(index, Kept(rows, variance), keep=False)
            key, value = self.heads(self.read(step, part))
            result = self.look(query, key, value, shift, layout=layout)
        mixed = self.mixed if self.mixed is None or self.mixed.dim() == 1 else self.mixed[step]
        return product(result, self.attention.output.weight, mixed)

    def write(self, index: Index | None, new: Kept, *, keep: bool) -> int:
        """Overwrite rows; with ``keep``, remember what stood there. Returns how many writes can be undone."""
        if self.kept is None or index is None:
            self.kept = Kept(new.rows.detach(), None if new.variance is None else new.variance.detach())
            self.undo.append(None)
            return 1
        if keep:
            self.undo.append(Write(index, self.kept.choose(index)))
        self._put(index, new)
        return len(self.undo)

    def _put(self, index: Index, new: Kept) -> None:
        assert self.kept is not None
        for part, rows in zip(self.kept, new, strict=True):
            if part is not None and rows is not None:
                part.index_copy_(0, index, rows)

    def rewind(self, depth: int) -> None:
        """Undo writes until ``depth`` are left."""
        while len(self.undo) > depth:
            write = self.undo.pop()
            if write is not None:
                self._put(*write)

    def read(self, step: int, part: Tensor | None) -> Both:
        """Keys and values as ``step`` sees them."""
        assert self.kept is not None
        rows, variance = self.kept
        if variance is None:
            return rows
        if self.scratch is None:
            self.scratch = torch.empty_like(rows)
        return read(rows, variance[:, step], part, out=self.scratch)

    def heads(self, rows: Both) -> tuple[Keys, Keys]:
        """Keys and values as attention wants them."""
        both = rows.view(
            self.batch, -1, 2, self.attention.num_heads, rows.shape[1] // 2 // self.attention.num_heads
        )
        key, value = both.unbind(2)
        return key.transpose(1, 2), value.transpose(1, 2)

    def look(self, query: Rows, key: Keys, value: Keys, shift: Tensor | None, *, layout: Layout) -> Rows:
        """Attention itself."""
        if shift is not None:
            value = value + shift.view(key.shape[1], 1, -1)
        return layout.attend(query, key, value, mask=self.mask, causal=self.causal, dropout=self.dropout)

    def owe(self, key: Keys, value: Keys, part: Tensor | None, *, step: int) -> Tensor | None:
        """Add gradients of keys and values as ``step`` saw them to what is owed to whoever wrote them.

        Returns the gradient of ``part``.
        """
        assert self.kept is not None
        rows, variance = self.kept
        if self.owed is None:
            self.owed = Kept(torch.zeros_like(rows), None if variance is None else torch.zeros_like(variance))
        if variance is None or part is None or self.owed.variance is None:
            for total, found in zip(self.heads(self.owed.rows), (key, value), strict=True):
                total.add_(found)
            return None
        assert self.scratch is not None
        # y = (x + p) / σ: dx = dy / σ and dσ² = -(dy · y) / 2σ²; y is what `read` has left
        spread = variance[:, step]
        scale = spread.rsqrt().to(rows.dtype).unsqueeze(1)
        turned, moved = torch.zeros_like(spread), list[Tensor]()
        parts = zip(self.owed.rows.chunk(2, 1), (key, value), self.scratch.chunk(2, 1), strict=True)
        for total, found, seen in parts:
            # a view of what attention gives, held by nothing else
            flat = found.transpose(1, 2).reshape(seen.shape)
            turned += torch.linalg.vecdot(flat, seen).to(spread.dtype)
            total.add_(flat.mul_(scale))
            moved.append(flat.sum(0))
        self.owed.variance[:, step] -= turned / (2.0 * spread)
        return torch.cat(moved)

    def pay(self, index: Index | None) -> Kept:
        """The gradients owed to the rows ``index``, which are owed nothing afterwards."""
        assert self.owed is not None
        if index is None:
            return self.owed
        paid = self.owed.choose(index)
        for total in self.owed:
            if total is not None:
                total.index_fill_(0, index, 0.0)
        return paid


class StoredAttention(torch.autograd.Function):
    """Write this step's keys and values into the store, then attend; backward runs the steps in reverse.

    Backward finds the store as it was at this step, repeats the attention, passes the gradients of the keys and
    values written here to those who computed them and keeps the rest for earlier steps, then undoes the write.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        rows: Tensor,
        variance: Tensor | None,
        part: Tensor | None,
        shift: Tensor | None,
        index: Tensor | None,
        step: int,
        store: Store,
        layout: Layout,
    ) -> Tensor:
        ctx.depth = store.write(index, Kept(rows, variance), keep=True)
        ctx.store, ctx.layout, ctx.step = store, layout, step
        ctx.random = _random_state(query.device) if store.dropout else None
        ctx.save_for_backward(query, part, shift, index)
        key, value = store.heads(store.read(step, part))
        return store.look(query, key, value, shift, layout=layout)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        store: Store = ctx.store
        if len(store.undo) < ctx.depth:
            raise RuntimeError(
                "a compact recurrence can be differentiated once: its storage has been rewound"
            )
        store.rewind(ctx.depth)
        query, part, shift, index = ctx.saved_tensors
        with torch.no_grad():
            asked = [query, *store.heads(store.read(ctx.step, part)), *([] if shift is None else [shift])]
        devices = [query.device] if query.device.type == "cuda" else []
        with torch.enable_grad(), torch.random.fork_rng(devices=devices, enabled=bool(store.dropout)):
            if ctx.random is not None:
                _set_random_state(query.device, ctx.random)
            seen = [one.detach().requires_grad_() for one in asked]
            result = store.look(
                seen[0], seen[1], seen[2], None if shift is None else seen[3], layout=ctx.layout
            )
        query, key, value, *moved = torch.autograd.grad(result, seen, grads[0])
        added = store.owe(key, value, part, step=ctx.step)
        paid = store.pay(index)
        store.rewind(ctx.depth - 1)
        return query, *paid, added, (moved[0] if moved else None), None, None, None, None


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
