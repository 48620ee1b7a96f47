"""Keys and values of all positions of a batch, in one store that every step overwrites at the rows that ran.

In training, :class:`StoredAttention` records what each write replaced (the tape), and its backward pass undoes the
writes; a further backward pass makes them again. So the memory that is kept grows with the positions that ran, not with
all positions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from universal_transformer.axes import Float, Index, KeysAndValues, Rows, Tensor
from universal_transformer.execution.projection import HaltedProjection, Projected
from universal_transformer.execution.rows import BatchKeys, BatchLayout, StepOfRows, rotate_rows
from universal_transformer.nn.block import Block
from universal_transformer.nn.context import Context
from universal_transformer.nn.halting import Progress
from universal_transformer.torch_private import backward_pass


class Write(NamedTuple):
    """Where rows were written, and what is not in the store: what they replaced, or after undoing what they were."""

    at: Index
    other: Projected


class BatchStore:
    """Keys and values that the running positions of a batch attend to, from step ``begin`` on.

    In the block of ``number`` 0 of a step, they are those of the rows that the step before has changed, the first time
    of all rows. In each later block they are those of the states that attend, and ``halted`` those of the states with
    which halted positions entered the block.
    """

    def __init__(self, block: Block, number: int, was: Progress, context: Context, *, begin: int) -> None:
        attention, signals = block.attention, None if number else context.signals
        self.attention, self.projection = attention, HaltedProjection(block, signals=signals)
        self.batch, self.context, self.begin = len(was.states), context, begin
        self.dropout, self.rotates = attention.active_dropout, attention.rotates
        self.constant = self._constant()
        # the query's map is a part of one matrix, taken once so that its gradient is added once
        width, joint = attention.query_key_value.in_features, attention.query_key_value
        self.weight, self.bias = joint.weight[:width], None if joint.bias is None else joint.bias[:width]
        self.halted = self.projection.project(was.inputs[number - 1].flatten(0, 1)).rows if number else None
        self.entries: Projected | None = None
        self.tape: list[Write | None] = []
        self.made = 0
        """How many of the writes on the tape are in the store."""
        self.gradients: Projected | None = None
        self.backward_pass = -1
        self.scratch: Tensor | None = None

    def _constant(self) -> Float[Tensor, "step width"] | Float[Tensor, "width"] | None:
        """The constant part of all values after the output projection: the bias of that projection.

        With dropout the weights do not sum to 1, so that the constant part is added to the values instead.
        """
        output, projection = self.attention.output, self.projection
        if self.dropout or projection.part is None:
            return output.bias
        constant = projection.part if projection.constant is None else projection.constant
        value, heads = constant.chunk(2, dim=-1)[1], self.attention.key_heads
        shared = value.view(*value.shape[:-1], heads, -1).repeat_interleave(self.attention.num_heads // heads, dim=-2)
        return linear(shared.flatten(-2), output.weight, output.bias)

    def attend(self, states: Rows, at: StepOfRows, *, seen: Rows | None) -> Rows:
        """Self-attention of running rows at a step, after which ``at.changed`` has what others see of them."""
        del seen
        assert isinstance(at.step, int)
        query = linear(states, self.weight, self.bias)
        part, needs_shift = self.projection.at(at.step), self.dropout or self.rotates
        shift = self.projection.shift(at.step) if needs_shift else None
        (rows, variance), index = self._written(states, at)
        assert isinstance(at.layout, BatchLayout)
        if torch.is_grad_enabled() and (query.requires_grad or rows.requires_grad):
            apply: Callable[..., Tensor] = StoredAttention.apply
            result = apply(query, rows, variance, part, shift, StepOfStore(self, at.step, index, at))
        else:
            self.write(at.step, index, Projected(rows, variance), keep=False)
            result = self.mix(at, query, *self.heads(self.read(at.step, part)), shift)
        bias = self.constant if self.constant is None or self.constant.dim() == 1 else self.constant[at.step]
        return linear(result, self.attention.output.weight, bias)

    def _written(self, states: Rows, at: StepOfRows) -> tuple[Projected, Index | None]:
        """Keys and values that a step writes, and at which rows (None: all)."""
        if self.halted is None:
            assert at.changed is not None
            return self.projection.project(at.changed.base), at.changed.rows
        assert isinstance(at.layout, BatchLayout)
        rows, index = linear(states, self.projection.weight, self.projection.bias), at.layout.index
        if at.step == self.begin:
            return Projected(self.halted.index_copy(0, index, rows), None), None
        return Projected(rows, None), index

    def mix(self, at: StepOfRows, query: Rows, key: BatchKeys, value: BatchKeys, shift: Tensor | None = None) -> Rows:
        """Attention itself, of keys and values that miss ``shift``."""
        context = self.context
        assert isinstance(at.layout, BatchLayout)
        if shift is not None:
            of_keys, of_values = shift.view(2, key.shape[1], 1, -1)
            key = key + of_keys if self.rotates else key
            value = value + of_values if self.dropout else value
        if self.rotates:
            query = rotate_rows(query, at.angles, num_heads=self.attention.num_heads)
            key = self.attention.place(key, context.encoding)
        causal, dropout = context.causal, self.dropout
        return at.layout.attend(query, key, value, mask=context.mask, causal=causal, dropout=dropout)

    def write(self, step: int, index: Index | None, new: Projected, *, keep: bool) -> None:
        """Overwrite rows, or make sure that it is done where a checkpointed step is computed again; with ``keep``, so
        that it can be undone.
        """
        if step - self.begin < len(self.tape):
            self.go_to(step)
            return
        if self.entries is None or index is None:
            self.entries = Projected(new.rows.detach(), None if new.variance is None else new.variance.detach())
            self.tape.append(None)
        else:
            self.tape.append(Write(index, self.entries.choose(index)) if keep else None)
            self.entries.put(index, new)
        self.made = len(self.tape)

    def go_to(self, step: int) -> None:
        """Undo writes or make them again, until those up to ``step`` are in the store."""
        assert self.entries is not None
        while (more := step + 1 - self.begin - self.made) != 0:
            place = self.made if more > 0 else self.made - 1
            if (write := self.tape[place]) is not None:
                self.tape[place] = Write(write.at, self.entries.choose(write.at))
                self.entries.put(*write)
            self.made += 1 if more > 0 else -1

    def read(self, step: int, part: Tensor | None) -> KeysAndValues:
        """Keys and values as ``step`` sees them."""
        assert self.entries is not None
        rows, variance = self.entries
        if variance is None or part is None:
            return rows
        if self.scratch is None:
            self.scratch = torch.empty_like(rows)
        scale = variance[:, step].rsqrt().to(rows.dtype).unsqueeze(1)
        return torch.add(rows, part, out=self.scratch).mul_(scale)

    def heads(self, rows: KeysAndValues) -> tuple[BatchKeys, BatchKeys]:
        """Keys and values in the shape that attention takes."""
        heads = self.attention.key_heads
        both = rows.view(self.batch, -1, 2, heads, rows.shape[1] // 2 // heads)
        key, value = both.unbind(2)
        return key.transpose(1, 2), value.transpose(1, 2)

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
            taken, self.gradients = self.gradients, None
            return taken
        taken = self.gradients.choose(index)
        for total in self.gradients:
            if total is not None:
                total.index_fill_(0, index, 0.0)
        return taken


class StepOfStore(NamedTuple):
    """A step of rows in a store, and the rows that it writes (None: all)."""

    store: BatchStore
    step: int
    rows: Index | None
    at: StepOfRows


class StoredAttention(torch.autograd.Function):
    """Write this step's keys and values into the store, then attend. The backward pass runs the steps in reverse.

    It brings the store to where it was at this step, repeats the attention, returns the gradients of the keys and
    values that this step wrote, and keeps the others for earlier steps. It can run again (``retain_graph=True``).
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        rows: Tensor,
        variance: Tensor | None,
        part: Tensor | None,
        shift: Tensor | None,
        call: StepOfStore,
    ) -> Tensor:
        ctx.call = call
        store, step, index, at = call
        store.write(step, index, Projected(rows, variance), keep=True)
        ctx.random = _random_state(query.device) if store.dropout else None
        ctx.save_for_backward(query, part, shift)
        return store.mix(at, query, *store.heads(store.read(step, part)), shift)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "gradients of gradients are not computed where halted positions are left out: call "
                'model.use_halting_execution("masked"), and the model inside torch.nn.attention.sdpa_kernel('
                "torch.nn.attention.SDPBackend.MATH)"
            )
        store, step, index, at = ctx.call
        if store.backward_pass != (current := backward_pass()):
            store.backward_pass, store.gradients = current, None
        store.go_to(step)
        query, part, shift = ctx.saved_tensors
        inputs = [query, *store.heads(store.read(step, part)), *([] if shift is None else [shift])]
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        devices = [query.device] if query.device.type == "cuda" else []
        with torch.enable_grad(), torch.random.fork_rng(devices=devices, enabled=ctx.random is not None):
            if ctx.random is not None:
                _set_random_state(query.device, ctx.random)
            result = store.mix(at, *leaves)
        query, key, value, *others = torch.autograd.grad(result, leaves, grads[0])
        part_gradient = store.accumulate(key, value, part, step=step)
        new = store.take(index)
        return query, *new, part_gradient, (others[0] if others else None), None


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
