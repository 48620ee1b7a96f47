"""Keys and values of all positions of a batch, in one store that every step overwrites at the rows that ran.

In training, :class:`StoredAttention` records what each write replaced (the undo tape), and its backward pass undoes the
writes. So the memory that is kept grows with the positions that ran, not with all positions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from universal_transformer.axes import Bool, Float, Index, KeysAndValues, Rows, Tensor
from universal_transformer.execution.kernels import product
from universal_transformer.execution.projection import HaltedProjection, Projected, read
from universal_transformer.execution.recompute import Recompute
from universal_transformer.execution.rows import BatchKeys, BatchLayout, rotate_rows
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.coordinates import rotate


class Write(NamedTuple):
    """What a write replaced, to be restored."""

    at: Index
    before: Projected


class BatchStore:
    """Keys and values that the running positions of a batch attend to.

    :meth:`update` receives the rows with new states, the first time all rows; :meth:`attend` computes the attention.
    In the second and later blocks of a step, keys and values are those of the states that attend. No update announces
    them, and ``halted`` has the states with which halted positions entered the block.
    """

    def __init__(
        self,
        attention: SelfAttention,
        projection: HaltedProjection,
        *,
        batch: int,
        mask: Bool[Tensor, "..."] | None,
        causal: bool,
        halted: Rows | None = None,
        rotary: Float[Tensor, "2 rows 1 position half"] | None = None,
    ) -> None:
        self.attention, self.projection = attention, projection
        self.batch, self.mask, self.causal, self.rotary = batch, mask, causal, rotary
        self.dropout = attention.dropout if attention.training else 0.0
        self.constant = self._constant()
        # the query's map is a part of one matrix, taken once so that its gradient is added once
        width, linear = attention.query_key_value.in_features, attention.query_key_value
        self.weight, self.bias = linear.weight[:width], None if linear.bias is None else linear.bias[:width]
        self.entries: Projected | None = None
        self.new: tuple[Projected, Tensor | None] | None = None
        self.halted = None if halted is None else projection.project(halted).rows
        self.undo: list[Write | None] = []
        self.gradients: Projected | None = None
        self.scratch: Tensor | None = None

    def _constant(self) -> Float[Tensor, "step width"] | Float[Tensor, "width"] | None:
        """The constant part of all values after the output projection: the bias of that projection.

        With dropout the weights do not sum to 1, so that the constant part is added to the values instead.
        """
        output, projection = self.attention.output, self.projection
        if self.dropout or projection.part is None:
            return output.bias
        constant = projection.part if projection.constant is None else projection.constant
        return torch.nn.functional.linear(constant.chunk(2, dim=-1)[1], output.weight, output.bias)

    def update(self, index: Index | None, base: Rows, *, recompute: Recompute | None = None) -> None:
        """The states of the rows ``index`` (None: of all) are now ``b``."""
        self.new = self.projection.project(base, recompute=recompute), index

    def attend(self, states: Rows, *, step: int, layout: BatchLayout, shown: Rows | None = None) -> Rows:
        """Self-attention of running rows. What they show is known from :meth:`update`."""
        del shown
        query = product(states, self.weight, self.bias)
        part, needs_shift = self.projection.at(step), self.dropout or self.rotary is not None
        shift = self.projection.shift(step) if needs_shift else None
        (rows, variance), index = self.new or self._entering(states, layout)
        self.new = None
        if torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad):
            apply: Callable[..., Tensor] = StoredAttention.apply
            result = apply(query, rows, variance, part, shift, index, step, self, layout)
        else:
            self.write(index, Projected(rows, variance), keep=False)
            key, value = self.heads(self.read(step, part))
            result = self.mix(query, key, value, shift, layout=layout)
        bias = self.constant if self.constant is None or self.constant.dim() == 1 else self.constant[step]
        return product(result, self.attention.output.weight, bias)

    def _entering(self, states: Rows, layout: BatchLayout) -> tuple[Projected, Index | None]:
        """Keys and values of the rows that enter a later block of a step; the first time with those of all others."""
        rows, index = product(states, self.projection.weight, self.projection.bias), layout.index
        if self.halted is None:
            return Projected(rows, None), index
        whole, self.halted = self.halted.index_copy(0, index, rows), None
        return Projected(whole, None), None

    def write(self, index: Index | None, new: Projected, *, keep: bool) -> int:
        """Overwrite rows; with ``keep``, record what they replace. Returns how many writes can be undone."""
        if self.entries is None or index is None:
            self.entries = Projected(new.rows.detach(), None if new.variance is None else new.variance.detach())
            self.undo.append(None)
            return 1
        if keep:
            self.undo.append(Write(index, self.entries.choose(index)))
        self._put(index, new)
        return len(self.undo)

    def _put(self, index: Index, new: Projected) -> None:
        assert self.entries is not None
        for part, rows in zip(self.entries, new, strict=True):
            if part is not None and rows is not None:
                part.index_copy_(0, index, rows)

    def rewind(self, depth: int) -> None:
        """Undo writes until ``depth`` are left."""
        while len(self.undo) > depth:
            write = self.undo.pop()
            if write is not None:
                self._put(*write)

    def read(self, step: int, part: Tensor | None) -> KeysAndValues:
        """Keys and values as ``step`` sees them."""
        assert self.entries is not None
        rows, variance = self.entries
        if variance is None:
            return rows
        if self.scratch is None:
            self.scratch = torch.empty_like(rows)
        return read(rows, variance[:, step], part, out=self.scratch)

    def heads(self, rows: KeysAndValues) -> tuple[BatchKeys, BatchKeys]:
        """Keys and values in the shape that attention takes."""
        both = rows.view(self.batch, -1, 2, self.attention.num_heads, rows.shape[1] // 2 // self.attention.num_heads)
        key, value = both.unbind(2)
        return key.transpose(1, 2), value.transpose(1, 2)

    def mix(self, query: Rows, key: BatchKeys, value: BatchKeys, shift: Tensor | None, *, layout: BatchLayout) -> Rows:
        """Attention itself."""
        if shift is not None:
            of_keys, of_values = shift.view(2, key.shape[1], 1, -1)
            key = key if self.rotary is None else key + of_keys
            value = value + of_values if self.dropout else value
        if self.rotary is not None:
            query = rotate_rows(query, layout.angles(self.rotary), num_heads=key.shape[1])
            key = rotate(key, rotary=self.rotary)
        return layout.attend(query, key, value, mask=self.mask, causal=self.causal, dropout=self.dropout)

    def accumulate(self, key: BatchKeys, value: BatchKeys, part: Tensor | None, *, step: int) -> Tensor | None:
        """Add gradients of keys and values at ``step`` to the gradients of the stored rows.

        Returns the gradient of ``part``.
        """
        assert self.entries is not None
        rows, variance = self.entries
        if self.gradients is None:
            self.gradients = Projected(torch.zeros_like(rows), None if variance is None else torch.zeros_like(variance))
        if variance is None or part is None or self.gradients.variance is None:
            for total, gradient in zip(self.heads(self.gradients.rows), (key, value), strict=True):
                total.add_(gradient)
            return None
        assert self.scratch is not None
        # y = (x + p) / σ: dx = dy / σ and dσ² = -(dy · y) / 2σ²; y is what `read` has left
        spread = variance[:, step]
        scale = spread.rsqrt().to(rows.dtype).unsqueeze(1)
        dot, part_gradient = torch.zeros_like(spread), list[Tensor]()
        halves = zip(self.gradients.rows.chunk(2, 1), (key, value), self.scratch.chunk(2, 1), strict=True)
        for total, gradient, y in halves:
            # a view of a gradient that nothing else holds
            dy = gradient.transpose(1, 2).reshape(y.shape)
            dot += torch.linalg.vecdot(dy, y).to(spread.dtype)
            total.add_(dy.mul_(scale))
            part_gradient.append(dy.sum(0))
        self.gradients.variance[:, step] -= dot / (2.0 * spread)
        return torch.cat(part_gradient)

    def take(self, index: Index | None) -> Projected:
        """The accumulated gradients of the rows ``index``, which are reset to 0."""
        assert self.gradients is not None
        if index is None:
            return self.gradients
        taken = self.gradients.choose(index)
        for total in self.gradients:
            if total is not None:
                total.index_fill_(0, index, 0.0)
        return taken


class StoredAttention(torch.autograd.Function):
    """Write this step's keys and values into the store, then attend. The backward pass runs the steps in reverse.

    It restores the store as it was at this step, repeats the attention, returns the gradients of the keys and values
    that this step wrote, keeps the others for earlier steps, and undoes the write.
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
        store: BatchStore,
        layout: BatchLayout,
    ) -> Tensor:
        ctx.depth = store.write(index, Projected(rows, variance), keep=True)
        ctx.store, ctx.layout, ctx.step = store, layout, step
        ctx.random = _random_state(query.device) if store.dropout else None
        ctx.save_for_backward(query, part, shift, index)
        key, value = store.heads(store.read(step, part))
        return store.mix(query, key, value, shift, layout=layout)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        store: BatchStore = ctx.store
        if len(store.undo) < ctx.depth:
            raise RuntimeError("a compact recurrence can be differentiated once: its store has been rewound")
        store.rewind(ctx.depth)
        query, part, shift, index = ctx.saved_tensors
        with torch.no_grad():
            inputs = [query, *store.heads(store.read(ctx.step, part)), *([] if shift is None else [shift])]
        devices = [query.device] if query.device.type == "cuda" else []
        with torch.enable_grad(), torch.random.fork_rng(devices=devices, enabled=bool(store.dropout)):
            if ctx.random is not None:
                _set_random_state(query.device, ctx.random)
            leaves = [one.detach().requires_grad_() for one in inputs]
            result = store.mix(leaves[0], leaves[1], leaves[2], None if shift is None else leaves[3], layout=ctx.layout)
        query, key, value, *others = torch.autograd.grad(result, leaves, grads[0])
        part_gradient = store.accumulate(key, value, part, step=ctx.step)
        new = store.take(index)
        store.rewind(ctx.depth - 1)
        return query, *new, part_gradient, (others[0] if others else None), None, None, None, None


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
