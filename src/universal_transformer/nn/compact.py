"""Halting that pays: from the step where enough positions have halted, only those that still run are computed.

Exact, not approximate, for frozen states, post-norm, tied blocks and the feed-forward transition. A halted position
keeps its state ``h``; at step ``t`` its key is ``W_K (h + π) + W_K τ_t``. The second term is the same for every key,
adds the same number to every logit of a query, and softmax does not see it. Its value is ``W_V (h + π) + W_V τ_t``;
attention weights sum to 1, so the second term adds the constant ``W_V τ_t`` to every output. So keys and values are
kept *without* their step part, a halted position's are computed once, when it halts, and queries, projections and
transition run for running positions only.

While training, keys and values live in one storage that every step overwrites at its own rows;
:class:`StoredAttention` undoes the writes on the way back, so that what is kept grows with the positions that ran, not
with all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from universal_transformer.axes import Bool, Float, Int, PerPosition, States, Tensor
from universal_transformer.nn.attention import Memory, split_heads
from universal_transformer.nn.block import Block
from universal_transformer.nn.depth_cache import DepthCache
from universal_transformer.nn.halting import Halting, HaltingUnit, Output, advance, combine
from universal_transformer.nn.ragged import Layout, Rows


class Write(NamedTuple):
    """What a step wrote over, to be put back."""

    at: Int[Tensor, "row"]
    key: Rows
    value: Rows


class Store:
    """Keys and values of all positions, without step part, in one storage that steps overwrite at their rows."""

    def __init__(self, batch: int, length: int, like: Rows, *, num_heads: int, dropout: float) -> None:
        size = batch * length
        self.keys, self.values = like.new_zeros(size, like.shape[1]), like.new_zeros(size, like.shape[1])
        self.batch, self.num_heads, self.dropout = batch, num_heads, dropout
        self.undo: list[Write] = []
        self.owed: tuple[Tensor, Tensor] | None = None

    def write(self, index: Int[Tensor, "row"], key: Rows, value: Rows, *, keep: bool) -> int:
        """Overwrite rows; with ``keep``, remember what stood there. Returns how many writes can be undone."""
        if keep:
            self.undo.append(Write(index, self.keys[index], self.values[index]))
        self.keys.index_copy_(0, index, key)
        self.values.index_copy_(0, index, value)
        return len(self.undo)

    def rewind(self, depth: int) -> None:
        """Undo writes until ``depth`` are left."""
        while len(self.undo) > depth:
            index, key, value = self.undo.pop()
            self.keys.index_copy_(0, index, key)
            self.values.index_copy_(0, index, value)

    def owe(self, key: Rows, value: Rows) -> None:
        """Add gradients of the stored keys and values, to be paid to whoever wrote them."""
        self.owed = (key, value) if self.owed is None else (self.owed[0] + key, self.owed[1] + value)

    def pay(self, index: Int[Tensor, "row"]) -> tuple[Rows, Rows]:
        """The gradients owed to the rows ``index``, which are owed nothing afterwards."""
        assert self.owed is not None
        key, value = self.owed[0][index], self.owed[1][index]
        for total in self.owed:
            total.index_fill_(0, index, 0.0)
        return key, value

    def heads(self, rows: Rows) -> Float[Tensor, "batch heads key head"]:
        """Stored rows as attention wants them."""
        return split_heads(rows.view(self.batch, -1, rows.shape[1]), num_heads=self.num_heads)

    def attend(
        self,
        query: Rows,
        key: Float[Tensor, "position width"],
        value: Float[Tensor, "position width"],
        *,
        sight: "Sight",
    ) -> Rows:
        """Self-attention of the running rows."""
        return sight.layout.attend(
            query,
            self.heads(key),
            self.heads(value),
            mask=sight.mask,
            causal=sight.causal,
            dropout=self.dropout,
        )


class Sight(NamedTuple):
    """Which rows look, and what they may see."""

    layout: Layout
    mask: Bool[Tensor, "..."] | None
    causal: bool


class StoredAttention(torch.autograd.Function):
    """Write this step's keys and values into the store, then attend; backward runs the steps in reverse.

    Backward finds the store as it was at this step, repeats the attention, passes the gradients of the keys and
    values written here to those who computed them and keeps the rest for earlier steps, then undoes the write.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        shift: Tensor | None,
        index: Tensor,
        store: Store,
        sight: Sight,
    ) -> Tensor:
        ctx.depth = store.write(index, key, value, keep=True)
        ctx.store, ctx.sight = store, sight
        ctx.random = torch.get_rng_state() if store.dropout else None
        ctx.save_for_backward(query, shift, index)
        values = store.values if shift is None else store.values + shift
        return store.attend(query, store.keys, values, sight=sight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        store: Store = ctx.store
        if len(store.undo) < ctx.depth:
            raise RuntimeError(
                "a compact recurrence can be differentiated once: its storage has been rewound"
            )
        store.rewind(ctx.depth)
        query, shift, index = ctx.saved_tensors
        with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=bool(store.dropout)):
            if ctx.random is not None:
                torch.set_rng_state(ctx.random)
            asked = query.detach().requires_grad_()
            keys, values = store.keys.detach().requires_grad_(), store.values.detach().requires_grad_()
            moved = None if shift is None else shift.detach().requires_grad_()
            shifted = values if moved is None else values + moved
            result = store.attend(asked, keys, shifted, sight=ctx.sight)
        wanted = (asked, keys, values) if moved is None else (asked, keys, values, moved)
        found = torch.autograd.grad(result, wanted, grads[0])
        store.owe(found[1], found[2])
        key, value = store.pay(index)
        store.rewind(ctx.depth - 1)
        return found[0], key, value, (found[3] if moved is not None else None), None, None, None


@dataclass(frozen=True)
class Changed:
    """Rows whose keys and values are no longer those of their states, and ``h + π`` to renew them from."""

    index: Int[Tensor, "changed"]
    base: Float[Tensor, "changed width"]


@dataclass
class Running:
    """The rows that still think, and what they carry."""

    index: Int[Tensor, "row"]
    states: Rows
    output: Rows
    halting: Halting  # of one row: [1, running]

    @classmethod
    def of(cls, index: Int[Tensor, "row"], states: States, output: States, halting: Halting) -> "Running":
        """The rows ``index`` of a batch."""
        chosen = Halting(*(part.flatten()[index].unsqueeze(0) for part in halting))
        return cls(index, states.flatten(0, 1)[index], output.flatten(0, 1)[index], chosen)

    def choose(self, kept: Int[Tensor, "kept"]) -> "Running":
        """Only the rows ``kept``."""
        halting = Halting(*(part[:, kept] for part in self.halting))
        return Running(self.index[kept], self.states[kept], self.output[kept], halting)


def gather(rows: list[Running], *, output: States, halting: Halting) -> tuple[States, Halting]:
    """Every position's output and halting state again: what ``rows`` had when they left, over what was there before."""
    index = torch.cat([part.index for part in rows])

    def put(before: Tensor, parts: list[Tensor]) -> Tensor:
        return before.index_copy(0, index, torch.cat(parts).to(before.dtype))

    whole = put(output.flatten(0, 1), [part.output for part in rows]).view(output.shape)
    fields = [
        put(before.flatten(), [part.halting[field][0] for part in rows]).view_as(before)
        for field, before in enumerate(halting)
    ]
    return whole, Halting(*fields)


class CompactLoop:
    """The rest of a halting loop, from any step on, over running rows only."""

    def __init__(
        self,
        block: Block,
        unit: HaltingUnit,
        *,
        states: States,
        signal: Float[Tensor, "#batch position width"] | None,
        mask: Bool[Tensor, "..."] | None,
        causal: bool,
        memory: Memory | None,
        cache: DepthCache | None = None,
    ) -> None:
        self.block, self.unit, self.memory, self.cache = block, unit, memory, cache
        self.stored = 0 if cache is None else cache.cache.length
        self.batch, self.length, width = states.shape
        self.mask, self.causal = mask, causal
        self.signal = None
        if signal is not None:
            self.signal = signal[0] if len(signal) == 1 else signal.reshape(-1, width)
        self.states = states
        self.store: Store | None = None

    def place(self, states: Rows, index: Int[Tensor, "row"]) -> Rows:
        """``h + π`` of rows."""
        if self.signal is None:
            return states
        shared = len(self.signal) == self.length
        return states + self.signal[index % self.length if shared else index].to(states.dtype)

    def probability(self, timed: Rows, layout: Layout) -> Float[Tensor, "1 row"]:
        """Halting probability of each row; with ``scope="sequence"`` the mean over its sequence."""
        each = self.unit.each(timed.unsqueeze(0))
        if self.unit.scope == "position":
            return each
        sequence = layout.index.div(self.length, rounding_mode="floor")
        total = each.new_zeros(self.batch).index_add(0, sequence, each[0])
        return (total / each.new_tensor(layout.counts).clamp(min=1))[sequence].unsqueeze(0)

    def mix(
        self,
        timed: Rows,
        *,
        changed: Changed,
        step: int,
        signal: Float[Tensor, "width"] | None,
        layout: Layout,
    ) -> Rows:
        """Self-attention of running rows, after the keys and values of ``changed`` rows are renewed."""
        if self.cache is not None:
            return self.mix_cached(timed, cache=self.cache, step=step, layout=layout)
        module, sight = self.block.attention, Sight(layout, self.mask, self.causal)
        key, value = module.keys_values(changed.base)
        query = module.queries(timed)
        shift = None if signal is None else module.shift(signal)
        if self.store is None:
            dropout = module.dropout if module.training else 0.0
            self.store = Store(self.batch, self.length, key, num_heads=module.num_heads, dropout=dropout)
        inside = shift if self.store.dropout else None  # dropped weights no longer sum to 1
        if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
            apply: Callable[..., Tensor] = StoredAttention.apply
            mixed = apply(query, key, value, inside, changed.index, self.store, sight)
        else:
            self.store.write(changed.index, key, value, keep=False)
            values = self.store.values if inside is None else self.store.values + inside
            mixed = self.store.attend(query, self.store.keys, values, sight=sight)
        return module.output(mixed if shift is None or inside is not None else mixed + shift)

    def mix_cached(self, timed: Rows, *, cache: DepthCache, step: int, layout: Layout) -> Rows:
        """Self-attention of running rows over the slot of their step, behind the positions of earlier calls."""
        module = self.block.attention
        row, place = self.where(layout.index)
        query = cache.query(timed, step=step, row=row, place=place)
        key, value = cache.slot(step, stored=self.stored + self.length)
        dropout = module.dropout if module.training else 0.0
        return module.output(
            layout.attend(query, key, value, mask=self.mask, causal=self.causal, dropout=dropout)
        )

    def where(self, index: Int[Tensor, "row"]) -> tuple[Int[Tensor, "row"], Int[Tensor, "row"]]:
        """The sequence of each row, and its place in a cache."""
        return index.div(self.length, rounding_mode="floor"), index % self.length + self.stored

    def settle(self, states: Rows, index: Int[Tensor, "row"], *, step: int) -> None:
        """Let what has halted serve the steps from ``step`` on to later calls."""
        if self.cache is not None and step < self.cache.depth and len(index):
            row, place = self.where(index)
            steps = torch.full_like(index, step)
            self.cache.settle(self.place(states, index), step=steps, row=row, place=place)

    def begin(self, halting: Halting, *, step: int) -> Changed:
        """The rows whose keys and values are not in the store: all; behind a cache, none but those that halted."""
        states = self.states.flatten(0, 1)
        index = torch.arange(len(states), device=states.device)
        if self.cache is not None:
            halted = (~halting.running & (halting.steps > 0)).flatten().nonzero().squeeze(1)
            self.settle(states[halted], halted, step=step)
            index = index[:0]
        return Changed(index, self.place(states[index], index))

    def look(self, states: Rows, layout: Layout) -> Rows:
        """Attention of running rows over the source."""
        module, memory = self.block.cross_attention, self.memory
        assert module is not None
        assert memory is not None
        dropout = module.dropout if module.training else 0.0
        query = module.query(states)
        return module.output(
            layout.attend(query, memory.key, memory.value, mask=memory.mask, dropout=dropout)
        )

    def run(
        self,
        output: States,
        halting: Halting,
        *,
        first: int,
        signals: Float[Tensor, "step width"] | None,
        num_steps: int,
        threshold: float,
        remainder_at_cap: bool,
        rule: Output,
    ) -> tuple[States, Halting, list[PerPosition], list[PerPosition]]:
        """Run to the end. ``signals``: those of the ``num_steps`` steps left, from step ``first`` on. Returns the
        output, the halting state, and probabilities and weights of each step made, 0 where a position did not run.
        """
        rows = Running.of(halting.running.flatten().nonzero().squeeze(1), self.states, output, halting)
        changed = self.begin(halting, step=first)
        left, probabilities, weights = [], list[Tensor](), list[Tensor]()
        for number in range(num_steps):
            signal = None if signals is None else signals[number].to(output.dtype)
            layout = Layout.of(rows.index, batch=self.batch, length=self.length, stored=self.stored)
            base = self.place(rows.states, rows.index)
            timed = base if signal is None else base + signal
            probability = self.probability(timed, layout)
            stop = remainder_at_cap and number == num_steps - 1
            rows.halting, weight = advance(rows.halting, probability, threshold=threshold, stop=stop)
            rows.states = self.block.forward_rows(
                timed,
                attend=partial(self.mix, changed=changed, step=first + number, signal=signal, layout=layout),
                look=None if self.memory is None else partial(self.look, layout=layout),
            )
            rows.output = combine(
                rows.output.unsqueeze(0),
                rows.states.unsqueeze(0),
                weight,
                active=torch.ones_like(weight, dtype=torch.bool),
                rule=rule,
            ).squeeze(0)
            for made, kept in ((probability, probabilities), (weight, weights)):
                flat = made.new_zeros(self.batch * self.length).index_copy(0, rows.index, made[0])
                kept.append(flat.view(self.batch, self.length))
            changed = Changed(rows.index, self.place(rows.states, rows.index))
            running = rows.halting.running[0]
            kept_rows = running.nonzero().squeeze(1)
            if len(kept_rows) < len(running):
                left.append(rows.choose((~running).nonzero().squeeze(1)))
                rows = rows.choose(kept_rows)
                self.settle(left[-1].states, left[-1].index, step=first + number + 1)
            if not len(rows.index):
                break
        left.append(rows)
        whole, halting = gather(left, output=output, halting=halting)
        return whole, halting, probabilities, weights
