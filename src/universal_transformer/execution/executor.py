"""The halting loop with halted positions left out, from the step on where that saves time.

It starts as the loop of ``nn/recurrence.py``. When enough positions have halted, the remaining steps are made for the
running rows only (``engine.py``), in training and in inference, with and without a cache.
"""

import weakref
from contextlib import nullcontext
from functools import partial

import torch

from universal_transformer.axes import Float, Index, Int, Padding, PerPosition, PerRow, Rows, States, Tensor
from universal_transformer.execution.cache_store import CacheStore
from universal_transformer.execution.engine import RowAttention, RowEngine, StepResult
from universal_transformer.execution.kernels import apply_linear
from universal_transformer.execution.policy import (
    compaction_obstacle,
    compaction_pays_up_to,
    recompute_pays,
    transformed,
)
from universal_transformer.execution.projection import HaltedProjection
from universal_transformer.execution.recompute import Recompute, compute
from universal_transformer.execution.rows import BatchLayout, RowState, angles_at, indices_of, rotate_rows
from universal_transformer.execution.store import BatchStore
from universal_transformer.nn.attention import CrossAttention, ProjectedSource
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.context import AttentionContext
from universal_transformer.nn.progress import Depth, HaltingProgress
from universal_transformer.nn.recurrence import Recurrence, call_checkpointed
from universal_transformer.nn.trace import Trace

_PROJECTIONS: weakref.WeakKeyDictionary[KeyValueCache, HaltedProjection] = weakref.WeakKeyDictionary()
"""The projection that the entries of a cache were computed with: made once for a cache."""


def compacting_loop(
    recurrence: Recurrence,
    states: States,
    context: AttentionContext,
    *,
    depth: Depth,
    padding: Padding | None,
) -> tuple[States, Trace] | None:
    """``recurrence.halting_loop`` without the halted positions where that saves time; None where it is not exact."""
    unit = recurrence.stop_unit(depth)
    if unit is None or transformed() or compaction_obstacle(recurrence, context, depth=depth) is not None:
        return None
    progress = HaltingProgress.start(states, unit=unit, blocks=recurrence.blocks_per_step, padding=padding)
    signals = recurrence.coordinates.step_signals(depth.max_steps, like=states)
    loop = CompactLoop(recurrence, context, depth=depth, signals=signals)
    positions, by_sequence = progress.halting.running.numel(), unit.config.scope == "sequence"
    most = compaction_pays_up_to(recurrence, context, positions=positions, by_sequence=by_sequence)
    for step in range(depth.max_steps):
        counts = progress.halting.running.sum(dim=1).tolist()
        running = sum(counts)
        if step and not running:
            if context.cache is not None:
                loop.write_halted(progress, step=step)
            break
        if 0 < running <= most:
            loop.run(progress, step=step, counts=counts)
            break
        recurrence.halting_step(progress, context, step=step, depth=depth, signals=signals, padding=padding)
    return progress.output.to(states.dtype), progress.trace(padding, unit=unit, depth=depth)


def cache_stores(recurrence: Recurrence, cache: KeyValueCache, *, depth: int) -> list[CacheStore]:
    """The cache by depth step, for each block of a step."""
    projection = _PROJECTIONS.get(cache)
    if projection is None:
        signals = recurrence.coordinates.step_signals(depth, like=cache.entries)
        projection = _PROJECTIONS[cache] = HaltedProjection(recurrence.block, signals=signals)
    return [
        CacheStore(
            cache,
            block.attention,
            None if number else projection,
            depth=depth,
            first=recurrence.first_slot + number,
            stride=recurrence.blocks_per_step,
        )
        for number, block in enumerate(recurrence.tied_blocks)
    ]


def _add_positions(states: Rows, signal: Float[Tensor, "#batch position width"]) -> Rows:
    """``h + π`` of all positions."""
    return (states.view(-1, *signal.shape[1:]) + signal).flatten(0, 1)


def _add_rows(sums: PerPosition, values: PerRow, *, index: Index) -> PerPosition:
    """Add each value to the position that ``index`` names."""
    return sums + torch.zeros_like(sums).flatten().index_add(0, index, values).view_as(sums)


class Record:
    """Probabilities, weights and decisions of the rows that ran, step by step."""

    def __init__(self) -> None:
        self.index: list[Tensor] = []
        self.values: tuple[list[Tensor], ...] = [], [], []

    def add(self, index: Index, result: StepResult) -> None:
        """One more step of the rows ``index``."""
        self.index.append(index)
        for values, value in zip(self.values, (result.probability, result.weight, result.halts), strict=True):
            values.append(value)

    def write(self, progress: HaltingProgress) -> None:
        """Add the steps to ``progress``; the cumulative probabilities are not needed any more."""
        halting, steps = progress.halting, len(self.index)
        like = halting.cumulative
        size, index = like.numel(), torch.cat(self.index)
        at = torch.cat([index + step * size for step, index in enumerate(self.index)])
        probability, weight, halts = (torch.cat(values) for values in self.values)
        progress.halting = halting._replace(
            remainder=_add_rows(halting.remainder, weight * halts, index=index),
            steps=_add_rows(halting.steps, torch.ones_like(weight), index=index),
        )
        for found, values in ((progress.probabilities, probability), (progress.weights, weight)):
            made = like.new_zeros(steps * size).index_copy(0, at, values).view(steps, *like.shape)
            found.extend(made.unbind(0))


class CompactLoop:
    """The remaining steps of a call, for running rows only."""

    def __init__(
        self,
        recurrence: Recurrence,
        context: AttentionContext,
        *,
        depth: Depth,
        signals: Float[Tensor, "step width"] | None,
    ) -> None:
        self.recurrence, self.context, self.depth, self.signals = recurrence, context, depth, signals
        self._signals = context.encoding.signal if recurrence.coordinates.every_step else None  # π
        self.caches: list[CacheStore] = []
        if context.cache is not None:
            self.caches = cache_stores(recurrence, context.cache, depth=depth.max_steps)
        self.recompute: Recompute | None = None

    def run(self, progress: HaltingProgress, *, step: int, counts: list[int]) -> None:
        """Make the steps from ``step`` on. ``counts``: the number of running positions of each sequence."""
        recurrence, context, states = self.recurrence, self.context, progress.states
        if torch.is_grad_enabled() and not torch.compiler.is_compiling() and recompute_pays(states.shape[-1]):
            self.recompute = Recompute(device=states.device)
        stored = 0 if context.cache is None else context.cache.length
        layout = BatchLayout.of(progress.halting.running, counts=counts, stored=stored)
        engine = RowEngine(
            recurrence,
            depth=self.depth,
            signals=self.signals,
            recompute=self.recompute,
            checkpoint=call_checkpointed if recurrence.recomputes(context) else None,
            lengths=context.lengths,
        )
        with nullcontext() if self.recompute is None else self.recompute.hooks():
            self._steps(progress, engine, layout, step=step)
        if self.recompute is not None:
            self.recompute.forget()

    def _steps(self, progress: HaltingProgress, engine: RowEngine, layout: BatchLayout, *, step: int) -> None:
        seen, record = self.write_halted(progress, step=step), Record()
        base = seen if progress.shown is None else self._placed(progress.states)
        stores = [] if self.caches else self._stores(progress)
        first = stores[0] if stores else None
        if first is not None:
            first.update(None, seen, recompute=self.recompute)
        h, kind = progress.halting.cumulative.flatten(), progress.output.dtype
        rows = RowState(
            layout=layout,
            step=step,
            base=compute(self.recompute, torch.index_select, base, 0, layout.index),
            signal=self._signal(layout),
            output=progress.output.to(torch.promote_types(kind, h.dtype), copy=True).flatten(0, 1),
            cumulative=h.index_select(0, layout.index),
            unit_state=tuple(part.flatten(0, 1).index_select(0, layout.index) for part in progress.unit_state),
            shown=None if progress.shown is None else seen.index_select(0, layout.index),
        )
        for number in range(step, self.depth.max_steps):
            result = engine.step(
                rows,
                attention=self._attention(stores, step=number, layout=layout),
            )
            assert result is not None
            record.add(layout.index, result)
            if number == self.depth.max_steps - 1:
                break
            further, kept = layout.choose(result.running)
            if len(kept) and first is not None:
                first.update(layout.index, rows.seen, recompute=self.recompute)
            if further is layout:
                continue
            if self.caches:
                left = indices_of(~result.running, count=len(layout.index) - len(kept))
                self._write_deeper(rows.seen, layout.index, left, step=number + 1)
            if not len(kept):
                break
            layout = further
            rows.layout, rows.signal = layout, self._signal(layout)
            rows.base = compute(self.recompute, torch.index_select, rows.base, 0, kept)
            rows.cumulative = rows.cumulative.index_select(0, kept)
            rows.unit_state = tuple(part.index_select(0, kept) for part in rows.unit_state)
            rows.shown = None if rows.shown is None else rows.shown.index_select(0, kept)
        record.write(progress)
        progress.output = rows.output.view_as(progress.output)

    def write_halted(self, progress: HaltingProgress, *, step: int) -> Rows:
        """What others see of all positions, without τ. A cache receives the halted ones, in the slots from ``step``."""
        base = self._placed(progress.states if progress.shown is None else progress.shown)
        if self.caches:
            halted = ~progress.halting.running & (progress.halting.steps > 0)
            index = halted.flatten().nonzero().squeeze(1)
            self._write_deeper(base, None, index, step=step)
        return base

    def _placed(self, states: States) -> Rows:
        """``b = h + π`` of all positions."""
        base = states.flatten(0, 1)
        if self._signals is None:
            return base
        self._signals = self._signals.to(base.dtype)
        found: Rows = compute(self.recompute, _add_positions, base, self._signals)
        return found

    def _write_deeper(self, base: Rows, index: Index | None, rows: Int[Tensor, "halted"], *, step: int) -> None:
        """Write ``rows`` of ``base`` to the deeper slots; ``index`` has flat indices, None: the rows themselves."""
        if step >= self.depth.max_steps or not len(rows):
            return
        flat = rows if index is None else index.index_select(0, rows)
        length, rotary = self.context.encoding.positions.shape[1], self.context.encoding.rotary
        batch = self.caches[0].sequences
        angles = None if rotary is None else angles_at(rotary, flat, batch=batch)
        for cache in self.caches:
            cache.write_deeper(
                base.index_select(0, rows),
                step=step,
                sequence=flat.div(length, rounding_mode="floor"),
                position=flat % length + cache.cache.length,
                angles=angles,
            )

    def _stores(self, progress: HaltingProgress) -> list[BatchStore]:
        """Keys and values of the batch, for each block of a step."""
        context = self.context
        return [
            BatchStore(
                block.attention,
                HaltedProjection(block, signals=None if number else self.signals),
                batch=len(progress.states),
                mask=context.mask,
                causal=context.causal,
                halted=progress.entered[number - 1].flatten(0, 1) if number else None,
                rotary=context.encoding.rotary,
            )
            for number, block in enumerate(self.recurrence.tied_blocks)
        ]

    def _attention(self, stores: list[BatchStore], *, step: int, layout: BatchLayout) -> list[RowAttention]:
        """What computes the attention of the rows in each block of ``step``."""
        attends = [store.attend for store in stores] or [partial(self._attend, cache) for cache in self.caches]
        own = [partial(attend, step=step, layout=layout) for attend in attends]
        if self.context.source is None:
            return [RowAttention(attend, None) for attend in own]
        sources = self.context.source[self.recurrence.first_slot :]
        crosses = [block.cross_attention for block in self.recurrence.tied_blocks]
        return [
            RowAttention(attend, partial(_attend_source, cross, source, layout, self.context.encoding.rotary))
            for attend, cross, source in zip(own, crosses, sources[: len(crosses)], strict=True)
        ]

    def _attend(
        self, cache: CacheStore, states: Rows, *, step: int, layout: BatchLayout, shown: Rows | None = None
    ) -> Rows:
        """Self-attention of running rows in a cache, to which their keys and values are written first."""
        context = self.context
        slot = cache.slot(step, layout.sequence)
        angles = None if context.encoding.rotary is None else layout.angles(context.encoding.rotary)
        query = cache.query(states, slot=slot, position=layout.position, shown=shown, angles=angles)
        key, value = cache.keys_at(step, stored=layout.stored + layout.length)
        hidden = context.cached_padding
        mask = None if hidden is None else ~hidden[:, None, None, :]
        attention = cache.attention
        dropout = attention.dropout if attention.training else 0.0
        mixed = layout.attend(query, key, value, mask=mask, causal=layout.length > 1, dropout=dropout)
        return apply_linear(attention.output, mixed)

    def _signal(self, layout: BatchLayout) -> Rows | None:
        """π of the rows."""
        signal = self._signals
        if signal is None:
            return None
        index = layout.index if len(signal) == len(layout.counts) else layout.index % layout.length
        return compute(self.recompute, torch.index_select, signal.flatten(0, 1), 0, index)


def _attend_source(
    attention: CrossAttention | None,
    source: ProjectedSource,
    layout: BatchLayout,
    rotary: Float[Tensor, "2 rows 1 position half"] | None,
    states: Rows,
) -> Rows:
    """Attention of running rows to the source."""
    assert attention is not None
    dropout = attention.dropout if attention.training else 0.0
    query = apply_linear(attention.query, states)
    if attention.rotary:
        assert rotary is not None, "rotary queries need their positions"
        query = rotate_rows(query, layout.angles(rotary), num_heads=attention.num_heads)
    mixed = layout.attend(query, source.key, source.value, mask=source.mask, dropout=dropout)
    return apply_linear(attention.output, mixed)
