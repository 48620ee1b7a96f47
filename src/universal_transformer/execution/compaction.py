"""The loop over depth with halted positions left out, from the step on where that saves time.

It starts as the plain loop of ``nn/recurrence.py``. When enough positions have halted, the remaining steps are made for
the running rows only, in training and in inference, with and without a cache.

Exact, not approximate (``docs/model.md`` has the derivation): a halted position keeps its state, and what others attend
to at a later step follows from one projection. So queries, projections and transition are computed for running rows
only, by the same :meth:`Recurrence.advance`, whose attention is given by `RowsOfBatch`.
"""

import weakref
from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from universal_transformer.axes import Index, Int, Rows, States, Tensor
from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.execution.cache_store import CacheStore
from universal_transformer.execution.kernels import install_kernels
from universal_transformer.execution.policy import compaction_obstacle, compaction_pays_up_to
from universal_transformer.execution.projection import HaltedProjection
from universal_transformer.execution.rows import BatchLayout, angles_at, indices_of, rotate_rows
from universal_transformer.execution.store import BatchStore, Changed
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.context import Context, PositionEncoding
from universal_transformer.nn.halting import Made, Progress, accumulation_dtype
from universal_transformer.nn.recurrence import Recurrence, depth_loop
from universal_transformer.torch_private import in_transform

HaltingExecution = Literal["auto", "masked"]
"""Leave out halted positions where the result is the same and that saves time, or never."""
_PROJECTIONS: weakref.WeakKeyDictionary[KeyValueCache, HaltedProjection] = weakref.WeakKeyDictionary()
"""The projection that the entries of a cache were computed with: made once for a cache."""


def compact_loop(recurrence: Recurrence, states: States, context: Context) -> Progress:
    """:func:`~universal_transformer.nn.recurrence.depth_loop` without the halted positions where that saves time."""
    rule = context.depth.rule
    if not rule.stops or in_transform() or compaction_obstacle(recurrence, context) is not None:
        return depth_loop(recurrence, states, context)
    advance = recurrence.advancing(context)
    now = rule.start(states, context.idle, blocks=recurrence.blocks_per_step)
    history, most = list[Made](), compaction_pays_up_to(recurrence, context, positions=now.steps.numel())
    for step in range(context.depth.max_steps):
        assert now.running is not None
        counts = now.running.sum(dim=1).tolist()
        running = sum(counts)
        if step and not running:
            if context.cache is not None:
                CompactLoop(recurrence, context).write_halted(now, step=step)
            break
        if 0 < running <= most:
            last = CompactLoop(recurrence, context).run(now, step=step, counts=counts)
            return replace(last, history=(*history, *last.history))
        output, now = now.output, advance(now.carried(), context, step=step)
        now = rule.combine(output, now)
        history.append(Made(now.probability, now.weight))
    return replace(now, history=tuple(history))


def install(module: nn.Module, halting_execution: HaltingExecution = "auto") -> None:
    """Let every recurrence inside ``module`` use the CPU kernels and, with ``auto``, leave out halted positions where
    the result is the same and that saves time.
    """
    install_kernels(module)
    for part in module.modules():
        if isinstance(part, Recurrence):
            part.loop = compact_loop if halting_execution == "auto" else depth_loop


def cache_stores(recurrence: Recurrence, cache: KeyValueCache, *, depth: int) -> dict[nn.Module, CacheStore]:
    """The cache by depth step, for the attention of each block of a step."""
    projection, count = _PROJECTIONS.get(cache), recurrence.blocks_per_step
    if projection is None:
        signals = recurrence.coordinates.signals(depth, like=cache.entries)
        projection = _PROJECTIONS[cache] = HaltedProjection(recurrence.blocks[0], signals=signals)
    return {
        block.attention: CacheStore(
            cache, block.attention, None if number else projection, depth=depth, first=number, stride=count
        )
        for number, block in enumerate(recurrence.blocks)
    }


def choose(now: Progress, kept: Index) -> Progress:
    """Only the rows ``kept``, all of which run."""
    return replace(
        now,
        states=now.states.index_select(0, kept),
        output=None if now.output is None else now.output.index_select(0, kept),
        running=None,
        steps=now.steps.index_select(0, kept),
        halted=now.halted.index_select(0, kept),
        remainder=now.remainder.index_select(0, kept),
        probability=None,
        weight=None,
        term=None,
        ran=None,
        memory=tuple(part.index_select(0, kept) for part in now.memory),
        shown=None if now.shown is None else now.shown.index_select(0, kept),
    )


class Record:
    """What the rows that ran have computed, step by step, and the output of those that ended."""

    def __init__(self) -> None:
        self.index: list[Tensor] = []
        self.made: list[Made] = []
        self.ended: list[tuple[Index, Progress]] = []

    def add(self, index: Index, now: Progress) -> None:
        """One more step of the rows ``index``."""
        self.index.append(index)
        self.made.append(Made(now.probability, now.weight))

    def end(self, index: Index, now: Progress) -> None:
        """The rows ``index`` make no further step."""
        self.ended.append((index, now))

    def finish(self, was: Progress) -> Progress:
        """What follows ``was`` for all positions after the last step."""
        assert was.output is not None
        index, size = torch.cat([index for index, _ in self.ended]), was.steps.numel()

        def put(old: Tensor, name: str) -> Tensor:
            values = torch.cat([getattr(now, name) for _, now in self.ended])
            flat = old.to(values.dtype).flatten(0, was.steps.dim() - 1)
            return flat.index_copy(0, index, values).view(old.shape)

        last = replace(
            was,
            output=put(was.output, "output"),
            steps=put(was.steps, "steps"),
            remainder=put(was.remainder, "remainder"),
            history=tuple(self.made),
        )
        if self.made[0].probability is None:
            return last
        at = torch.cat([index + step * size for step, index in enumerate(self.index)])
        values = [torch.cat([getattr(now, name) for now in self.made]) for name in ("probability", "weight")]
        steps = len(self.made)
        columns = [
            part.new_zeros(steps * size).index_copy(0, at, part).view(steps, *was.steps.shape).unbind(0)
            for part in values
        ]
        return replace(last, history=tuple(Made(p, weight) for p, weight in zip(*columns, strict=True)))


class CompactLoop:
    """The remaining steps of a call, for running rows only."""

    def __init__(self, recurrence: Recurrence, context: Context) -> None:
        self.recurrence, self.context, self.depth = recurrence, context, context.depth
        self.caches: dict[nn.Module, CacheStore] = {}
        if context.cache is not None:
            assert isinstance(context.cache, KeyValueCache)
            self.caches = cache_stores(recurrence, context.cache, depth=self.depth.max_steps)

    def run(self, was: Progress, *, step: int, counts: list[int]) -> Progress:
        """The steps from ``step`` on, after ``was``. ``counts``: the number of running positions of each sequence."""
        context, rule = self.context, self.depth.rule
        assert was.running is not None
        layout = BatchLayout.of(was.running, counts=counts, stored=0 if context.cache is None else context.cache.length)
        changed = Changed(None, self.write_halted(was, step=step))
        stores = {} if self.caches else self._stores(was)
        assert was.output is not None
        output = was.output.to(torch.promote_types(was.output.dtype, accumulation_dtype(was.output.dtype)))
        now = _rows(replace(was, output=output), layout.index)
        record, part = Record(), self._context(layout)
        advance = self.recurrence.advancing(part)
        for number in range(step, self.depth.max_steps):
            rows = RowsOfBatch(self, layout, part.encoding, stores, changed, step=number, number=number - step)
            before, now = now.output, advance(now.carried(), replace(part, rows=rows), step=number)
            assert before is not None
            now = rule.combine(before, now)
            record.add(layout.index, now)
            if number == self.depth.max_steps - 1:
                break
            assert now.running is not None
            changed = Changed(layout.index, self._placed(now.seen, part.encoding.signal))
            further, kept = layout.choose(now.running)
            if further is layout:
                now = replace(now, running=None)
                continue
            left = indices_of(~now.running, count=len(layout.index) - len(kept))
            ended = layout.index.index_select(0, left)
            record.end(ended, choose(now, left))
            if self.caches:
                self._write_deeper(changed.base.index_select(0, left), ended, step=number + 1)
            now, layout = choose(now, kept), further
            if not len(kept):
                break
            part = self._context(layout)
        if len(now.steps):
            record.end(layout.index, now)
        return record.finish(was)

    def write_halted(self, now: Progress, *, step: int) -> Rows:
        """``b = h + π`` of what others see of all positions. A cache receives the halted ones, in the slots from
        ``step``.
        """
        signal = self.context.encoding.signal if self.recurrence.coordinates.every_step else None
        base = self._placed(now.seen, signal).flatten(0, 1)
        if self.caches:
            assert now.running is not None
            index = (~now.running & (now.steps > 0)).flatten().nonzero().squeeze(1)
            self._write_deeper(base.index_select(0, index), index, step=step)
        return base

    def _placed(self, states: Tensor, signal: Tensor | None) -> Tensor:
        """``h + π``."""
        if signal is None or not self.recurrence.coordinates.every_step:
            return states
        return states + signal.to(states.dtype)

    def _context(self, layout: BatchLayout) -> Context:
        """What the rows of ``layout`` have in common."""
        context = self.context
        lengths = None if context.lengths is None else context.lengths.index_select(0, layout.sequence)
        encoding = layout.encoding(context.encoding)
        return replace(context, sequences=layout, encoding=encoding, padding=None, lengths=lengths)

    def _write_deeper(self, base: Rows, index: Int[Tensor, "halted"], *, step: int) -> None:
        """Write halted rows to the slots from ``step``; ``index`` has their flat indices."""
        if step >= self.depth.max_steps or not len(index):
            return
        positions, rotary = self.context.encoding.positions, self.context.encoding.rotary
        length = positions.shape[1]
        for cache in self.caches.values():
            cache.write_deeper(
                base,
                step=step,
                sequence=index.div(length, rounding_mode="floor"),
                position=index % length + cache.cache.length,
                angles=None if rotary is None else angles_at(rotary, index, batch=cache.sequences),
            )

    def _stores(self, was: Progress) -> dict[nn.Module, BatchStore]:
        """Keys and values of the batch, for the attention of each block of a step."""
        return {
            block.attention: BatchStore(
                block.attention,
                HaltedProjection(block, signals=None if number else self.context.signals),
                batch=len(was.states),
                context=self.context,
                halted=was.inputs[number - 1].flatten(0, 1) if number else None,
            )
            for number, block in enumerate(self.recurrence.blocks)
        }


def _rows(was: Progress, index: Index) -> Progress:
    """The positions ``index`` of a batch as rows, all of which run."""
    flat = replace(
        was,
        states=was.states.flatten(0, 1),
        output=None if was.output is None else was.output.flatten(0, 1),
        running=None,
        steps=was.steps.flatten(),
        halted=was.halted.flatten(),
        remainder=was.remainder.flatten(),
        probability=None,
        weight=None,
        term=None,
        ran=None,
        memory=tuple(part.flatten(0, 1) for part in was.memory),
        shown=None if was.shown is None else was.shown.flatten(0, 1),
        inputs=(),
    )
    return choose(flat, index)


class RowsOfBatch:
    """The attention of running rows of a batch at one step: :class:`~universal_transformer.nn.context.RowAttention`."""

    def __init__(
        self,
        loop: CompactLoop,
        layout: BatchLayout,
        encoding: PositionEncoding,
        stores: dict[nn.Module, BatchStore],
        changed: Changed,
        *,
        step: int,
        number: int,
    ) -> None:
        self.loop, self.layout, self.angles = loop, layout, encoding.rotary
        self.stores, self.changed, self.step, self.number = stores, changed, step, number

    def attend(self, attention: SelfAttention, states: Rows, *, seen: Rows | None, slot: int) -> Rows:
        """Self-attention of running rows: in the batch, or in a cache to which their keys and values are written."""
        del slot
        if not self.loop.caches:
            first = attention is self.loop.recurrence.blocks[0].attention
            return self.stores[attention].attend(states, self, changed=self.changed if first else None)
        layout, cache, context = self.layout, self.loop.caches[attention], self.loop.context
        where = cache.slot(self.step, layout.sequence)
        query = cache.query(states, slot=where, position=layout.position, shown=seen, angles=self.angles)
        key, value = cache.keys_at(self.step, stored=layout.stored + layout.length)
        hidden = context.stored_padding
        mask = None if hidden is None else ~hidden[:, None, None, :]
        dropout = attention.active_dropout
        mixed = layout.attend(query, key, value, mask=mask, causal=layout.length > 1, dropout=dropout)
        return attention.output(mixed)

    def attend_source(self, attention: CrossAttention, states: Rows, *, layer: int) -> Rows:
        """Attention of running rows to the source."""
        sources, query = self.loop.context.source, attention.query(states)
        assert sources is not None
        if attention.rotates:
            assert self.angles is not None, "rotary queries need their positions"
            query = rotate_rows(query, self.angles, num_heads=attention.num_heads)
        key, value, mask = sources[layer]
        return attention.output(self.layout.attend(query, key, value, mask=mask, dropout=attention.active_dropout))
