"""The loop over depth with halted positions left out, from the step on where that saves time.

It starts as the plain loop of ``nn/recurrence.py``. When enough positions have halted, the remaining steps are made for
the running rows only, in training and in inference, with and without a cache.

Exact, not approximate (``docs/model.md`` has the derivation): a halted position keeps its state, and what others attend
to at a later step follows from one projection. So queries, projections and transition are computed for running rows
only, by the same step, whose attention is given by :class:`~universal_transformer.execution.rows.StepOfRows`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any, Literal

import torch
from torch import nn

from universal_transformer.axes import Rows, States, Tensor
from universal_transformer.execution.cache import CacheStore, KeyValueCache, cache_stores
from universal_transformer.execution.policy import compaction_obstacle, compaction_pays_up_to
from universal_transformer.execution.rows import BatchLayout, Changed, StepOfRows, Store, choose, indices_of, rows_of
from universal_transformer.execution.store import BatchStore
from universal_transformer.nn.context import Context, PositionEncoding
from universal_transformer.nn.halting import Made, Progress, accumulation_dtype
from universal_transformer.nn.recurrence import Recurrence, depth_loop
from universal_transformer.torch_private import frame_not_compiled, in_transform, not_compiled

HaltingExecution = Literal["auto", "masked"]
"""Leave out halted positions where the result is the same and that saves time, or never."""


@frame_not_compiled  # it reads values: torch would recompile what is after each, and fails to
def compact_loop(recurrence: Recurrence, states: States, context: Context) -> Progress:
    """:func:`~universal_transformer.nn.recurrence.depth_loop` without the halted positions where that saves time."""
    rule, cache = context.depth.rule, context.cache
    foreign = cache is not None and not isinstance(cache, KeyValueCache)
    if not rule.stops or foreign or in_transform() or compaction_obstacle(recurrence, context) is not None:
        return depth_loop(recurrence, states, context)
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
            return last._replace(history=(*history, *last.history))
        now = recurrence.advance(now, context, step=step)
        history.append(Made(now.probability, now.weight))
    return now._replace(history=tuple(history))


def install(module: nn.Module, halting_execution: HaltingExecution = "auto") -> None:
    """Let every recurrence inside ``module`` leave out halted positions, with ``auto``, where the result is the same
    and that saves time.
    """
    for part in module.modules():
        if isinstance(part, Recurrence):
            part.loop = compact_loop if halting_execution == "auto" else depth_loop


RowsMade = tuple[Tensor, Made]
"""Rows that made a step, and what a trace reads of it."""
RESULT = ("output", "steps", "remainder")
"""What a loop returns of each position."""
RowsEnded = tuple[Tensor, Sequence[Tensor]]
"""Rows that make no further step, and their `RESULT`."""
_result = attrgetter(*RESULT)


class CompactLoop:
    """The remaining steps of a call, for running rows only."""

    def __init__(self, recurrence: Recurrence, context: Context) -> None:
        self.recurrence, self.context, self.last_step = recurrence, context, context.depth.max_steps - 1
        self.caches: dict[nn.Module, CacheStore] = {}
        if context.cache is not None:
            assert isinstance(context.cache, KeyValueCache)
            self.caches = cache_stores(recurrence, context.cache, depth=context.depth.max_steps)

    @not_compiled  # at each step it has another number of rows
    def run(self, was: Progress, *, step: int, counts: Sequence[int]) -> Progress:
        """The steps from ``step`` on, after ``was``. ``counts``: the number of running positions of each sequence."""
        assert was.running is not None
        assert was.output is not None
        index = indices_of(was.running.flatten(), count=sum(counts))
        stored = 0 if self.context.cache is None else self.context.cache.length
        layout = BatchLayout(index, tuple(counts), was.running.shape[1], stored)
        changed = Changed(None, self.write_halted(was, step=step))
        stores: Mapping[nn.Module, Store] = self.caches or {
            block.attention: BatchStore(block, number, was, self.context, begin=step)
            for number, block in enumerate(self.recurrence.blocks)
        }
        context, made, ended = self.context, list[RowsMade](), list[RowsEnded]()
        output = was.output.to(accumulation_dtype(was.output.dtype))
        now = rows_of(was._replace(output=output), lambda part: part.flatten(0, 1).index_select(0, index))
        for number in range(step, self.last_step + 1):
            encoding = layout.encoding(context.encoding)
            rows = StepOfRows(context, layout, stores, number, encoding.rotary, changed)
            lengths = None if context.lengths is None else context.lengths.index_select(0, layout.sequence)
            at = replace(context, rows=rows, sequences=layout, encoding=encoding, padding=None, lengths=lengths)
            now = self.recurrence.advance(now, at, step=number)
            made.append((layout.index, Made(now.probability, now.weight)))
            if number == self.last_step:
                break
            running = now.running
            assert running is not None
            changed = Changed(layout.index, self._placed(now.seen, encoding))
            counts, order = layout.divide(running)
            if (kept := sum(counts)) == len(order):
                now = now._replace(running=None)
                continue
            now, index = choose(now, order), layout.index.index_select(0, order)
            ended.append((index[kept:], [part[kept:] for part in _result(now)]))
            if self.caches:
                halted = replace(layout, index=index[kept:])
                self._write_deeper(changed.base.index_select(0, order[kept:]), halted, step=number + 1)
            if not kept:
                return whole(was, made, ended)
            now = rows_of(now, itemgetter(slice(kept)))
            layout = BatchLayout(index[:kept], counts, layout.length, stored)
        return whole(was, made, [*ended, (layout.index, _result(now))])

    def write_halted(self, now: Progress, *, step: int) -> Rows:
        """``b = h + π`` of what others see of all positions. A cache receives the halted ones, in the slots from
        ``step``.
        """
        base = self._placed(now.seen, self.context.encoding).flatten(0, 1)
        if self.caches:
            assert now.running is not None
            index = (~now.running & (now.steps > 0)).flatten().nonzero().squeeze(1)
            batch, length = now.running.shape
            stored = 0 if self.context.cache is None else self.context.cache.length
            halted = BatchLayout(index, (0,) * batch, length, stored)
            self._write_deeper(base.index_select(0, index), halted, step=step)
        return base

    def _placed(self, states: Tensor, encoding: PositionEncoding) -> Tensor:
        """``h + π``: the coordinates without τ."""
        return self.recurrence.coordinates(states, encoding, step=0, signals=None)

    def _write_deeper(self, base: Rows, halted: BatchLayout, *, step: int) -> None:
        """Write halted rows to the slots from ``step`` of a cache."""
        encoding = self.context.encoding
        angles = None if encoding.rotary is None else halted.encoding(encoding).rotary
        for store in self.caches.values():
            store.write_deeper(base, step=step, layout=halted, angles=angles)


def whole(was: Progress, made: Sequence[RowsMade], ended: Sequence[RowsEnded]) -> Progress:
    """All positions after the last step: those of ``was``, and the rows that ran after it."""
    index, size = torch.cat([rows for rows, _ in ended]), was.steps.numel()
    parts = dict[str, Any]()
    for name, old, *rows in zip(RESULT, _result(was), *(values for _, values in ended), strict=True):
        new = torch.cat(rows)
        flat = old.to(new.dtype).flatten(0, was.steps.dim() - 1)
        parts[name] = flat.index_copy(0, index, new).view(old.shape)
    history = tuple(values for _, values in made)
    if history[0].probability is not None:  # 0 where a position did not run
        at = torch.cat([rows + step * size for step, (rows, _) in enumerate(made)])
        columns = []
        for name in ("probability", "weight"):
            values = torch.cat([getattr(values, name) for values in history])
            spread = values.new_zeros(len(made) * size).index_copy(0, at, values)
            columns.append(spread.view(len(made), *was.steps.shape).unbind(0))
        history = tuple(Made(*column) for column in zip(*columns, strict=True))
    return was._replace(**parts, history=history)
