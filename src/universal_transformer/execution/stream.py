"""Rows at different tokens and different depth steps, refined by one call of the block (depth-continuous decoding).

Weights are shared over depth, so that two rows at different steps differ only in their signal ``τ_t`` and in the slot
of the cache that they attend to. A row that has halted goes on to its next token while the other rows continue. A batch
costs its mean number of steps a token, not its largest.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch.nn.functional import pad

from universal_transformer.axes import Float, Index, Int, Rows, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution import policy
from universal_transformer.execution.cache_store import CacheStore
from universal_transformer.execution.engine import Attend, RowAttention, RowEngine
from universal_transformer.execution.kernels import attend
from universal_transformer.execution.memory import allocate_cache
from universal_transformer.execution.policy import compaction_obstacle, shared_call_obstacle
from universal_transformer.execution.projection import HaltedProjection
from universal_transformer.execution.rows import Angles, Places, RowState, rotate_rows
from universal_transformer.nn.attention import CrossAttention, ProjectedSource
from universal_transformer.nn.cache import KeyValueCache
from universal_transformer.nn.halting import accumulation_dtype
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.recurrence import Recurrence


def stream_obstacle(recurrence: Recurrence, *, depth: Depth | None = None) -> str | None:
    """Why rows of this recurrence cannot be at different steps; None if they can. ``depth``: that of a call."""
    if not recurrence.decoder:
        return "it is not a decoder"
    if len(recurrence.layers) != len(recurrence.blocks):
        return "plain layers stand before or after the recurrence"
    if recurrence.stop_unit(depth) is None:
        return shared_call_obstacle(recurrence)
    if recurrence.executor is None:
        return 'halting_execution="masked" was chosen'
    return compaction_obstacle(recurrence, depth=depth)


class RowStream:
    """Sequences in a cache, each at its own token. :meth:`enter` starts tokens, :meth:`step` makes one depth step."""

    def __init__(self, recurrence: Recurrence, *, rows: int, capacity: int, depth: Depth) -> None:
        if (reason := stream_obstacle(recurrence, depth=depth)) is not None:
            raise UserError(f"rows cannot be at different depth steps: {reason}")
        self.recurrence, self.depth = recurrence, depth
        blocks = recurrence.tied_blocks
        attention, coordinates = blocks[0].attention, recurrence.coordinates
        weight = attention.query_key_value.weight
        width, device = weight.shape[1], weight.device
        signals = coordinates.step_signals(depth.max_steps, like=weight)
        self.engine = RowEngine(recurrence, depth=depth, signals=signals)
        cache = allocate_cache(
            (depth.max_steps + 1) * len(blocks),
            batch=rows,
            num_heads=attention.num_heads,
            capacity=capacity,
            width=width,
            like=weight.detach(),
        )
        projections = [HaltedProjection(blocks[0], signals=signals), *[None] * (len(blocks) - 1)]
        self.caches = [
            CacheStore(cache, block.attention, projection, depth=depth.max_steps, first=number, stride=len(blocks))
            for number, (block, projection) in enumerate(zip(blocks, projections, strict=True))
        ]
        reach = capacity  # of the learned table, where there is one: requests are checked against it
        if coordinates.position_table is not None:
            reach = min(capacity, len(coordinates.position_table))
        encoding = coordinates.encode(torch.arange(reach, device=device).unsqueeze(0))
        signal, rotary = encoding.signal, encoding.rotary
        self.rotary = None if rotary is None else rotary[:, 0, 0]  # of every position
        self.positions = None if signal is None else signal.squeeze(0).to(weight.dtype)  # π of every position
        self.numbers = torch.arange(capacity, device=device)
        unit = recurrence.stop_unit(depth)
        number, base = torch.arange(rows, device=device), weight.new_zeros(rows, width)
        self.rows = RowState(
            layout=Places(number, torch.zeros_like(number)),
            step=torch.zeros_like(number),
            base=base,
            signal=base.clone() if coordinates.every_step and signal is not None else None,
            output=torch.zeros_like(base, dtype=accumulation_dtype(base.dtype)),
            cumulative=torch.zeros(rows, dtype=accumulation_dtype(base.dtype), device=device),
            shown=base.clone() if unit is not None and unit.config.attends_to_expected_state else None,
        )
        self.sources: list[ProjectedSource] = []  # of each block, one a row, padded to the longest source so far

    def __len__(self) -> int:
        return len(self.rows.base)

    def load(self, cache: KeyValueCache, *, source: int, first: int, row: int) -> None:
        """Copy sequence ``source`` of another cache, from position ``first`` on, to the beginning of ``row``."""
        count = cache.length - first
        entries = self.caches[0].cache.entries
        entries[: -len(self.caches), row, :count] = cache.entries[:, source, first : cache.length]

    def enter(self, states: Rows, *, at: Index, position: Index) -> None:
        """Start embedded tokens in the rows ``at``; ``position`` tokens are stored before each."""
        rows = self.rows
        assert isinstance(rows.step, Tensor)
        if self.positions is not None:
            signal = self.positions.index_select(0, position)
            states = states + signal
            if rows.signal is not None:
                rows.signal.index_copy_(0, at, signal)
        rows.base.index_copy_(0, at, states)
        if rows.shown is not None:
            rows.shown.index_copy_(0, at, states)
        rows.layout.position.index_copy_(0, at, position)
        for part in (rows.step, rows.output, rows.cumulative, *rows.unit_state):
            part.index_fill_(0, at, 0)

    def keep(self, kept: Int[Tensor, "kept"]) -> None:
        """Only the rows ``kept`` go on."""
        rows = self.rows
        assert isinstance(rows.layout, Places)
        assert isinstance(rows.step, Tensor)
        self.rows = RowState(
            layout=rows.layout.select(kept),
            step=rows.step.index_select(0, kept),
            base=rows.base.index_select(0, kept),
            signal=None if rows.signal is None else rows.signal.index_select(0, kept),
            output=rows.output.index_select(0, kept),
            cumulative=rows.cumulative.index_select(0, kept),
            unit_state=tuple(part.index_select(0, kept) for part in rows.unit_state),
            shown=None if rows.shown is None else rows.shown.index_select(0, kept),
        )
        self.sources = [
            ProjectedSource(key[kept], value[kept], None if mask is None else mask[kept])
            for key, value, mask in self.sources
        ]

    def attach_source(self, source: Sequence[ProjectedSource], *, row: int, at: int) -> None:
        """Let the row ``at`` attend to the sequence ``row`` of ``source``, which has one entry for each block."""
        kept: list[ProjectedSource | None] = [*self.sources] or [None] * len(source)
        self.sources = [self._attached(old, new, row=row, at=at) for old, new in zip(kept, source, strict=True)]

    def _attached(self, kept: ProjectedSource | None, source: ProjectedSource, *, row: int, at: int) -> ProjectedSource:
        """``kept`` (None: nothing yet) with the sequence ``row`` of ``source`` at ``at``."""
        length = source.key.shape[2]
        if kept is None:
            blank = source.key.new_zeros(len(self), *source.key.shape[1:])
            hidden = torch.zeros(len(self), 1, 1, length, dtype=torch.bool, device=blank.device)
            kept = ProjectedSource(blank, blank.clone(), hidden)
        key, value, mask = kept
        assert mask is not None
        more = length - key.shape[2]
        if more > 0:
            key, value, mask = pad(key, (0, 0, 0, more)), pad(value, (0, 0, 0, more)), pad(mask, (0, more))
        key[at, :, :length], value[at, :, :length] = source.key[row], source.value[row]
        mask[at] = False
        mask[at, :, :, :length] = True if source.mask is None else source.mask[row]
        return ProjectedSource(key, value, mask)

    def step(self) -> Int[Tensor, "ended"]:
        """One depth step of every row. Returns the rows whose token is finished."""
        rows = self.rows
        own = [partial(self._attend, cache) for cache in self.caches]
        others: list[Attend | None] = [None] * len(own)
        if self.sources:
            crosses = [block.cross_attention for block in self.recurrence.tied_blocks]
            angles = self._angles(rows.layout.position)
            others = [partial(_attend_source, *pair, angles) for pair in zip(crosses, self.sources, strict=True)]
        result = self.engine.step(rows, attention=[RowAttention(*pair) for pair in zip(own, others, strict=True)])
        assert isinstance(rows.step, Tensor)
        if result is None:
            return (rows.step == self.depth.max_steps).nonzero().squeeze(1)
        ended = (~result.running | (rows.step == self.depth.max_steps)).nonzero().squeeze(1)
        if len(ended):
            step, sequence, position = (
                part.index_select(0, ended) for part in (rows.step, rows.layout.sequence, rows.layout.position)
            )
            base = rows.seen.index_select(0, ended)
            for cache in self.caches:
                cache.write_deeper(base, step=step, sequence=sequence, position=position, angles=self._angles(position))
        return ended

    def result(self, at: Int[Tensor, "ended"]) -> tuple[Rows, Float[Tensor, "ended"], Index]:
        """The last states of rows whose token is finished, the steps that it took, and its position."""
        rows, norm = self.rows, self.recurrence.closing_norm
        assert isinstance(rows.step, Tensor)
        output, step, position = (part.index_select(0, at) for part in (rows.output, rows.step, rows.layout.position))
        output = output.to(rows.base.dtype)
        return output if norm is None else norm(output), step.to(accumulation_dtype(output.dtype)), position

    def _angles(self, position: Index) -> Angles | None:
        """The angles of rows at ``position``, where positions are rotary."""
        return None if self.rotary is None else self.rotary.index_select(1, position)

    def _attend(self, cache: CacheStore, states: Rows, *, shown: Rows | None = None) -> Rows:
        """Each row over the positions up to its own, in the slot of its step."""
        rows, attention, size = self.rows, cache.attention, len(states)
        position = rows.layout.position
        stored = int(position.max()) + 1
        slot = cache.slot(rows.step, rows.layout.sequence)
        angles = self._angles(position)
        query = cache.query(states, slot=slot, position=position, shown=shown, angles=angles)
        query = query.view(size, attention.num_heads, 1, -1)
        if query.device.type == "cpu":
            size = max(1, min(size, policy.MOST_GATHERED // (2 * states.shape[1] * stored)))
        visible = (self.numbers[:stored] <= position.unsqueeze(1))[:, None, None]
        parts = zip(*(torch.split(each, size) for each in (query, slot, visible)), strict=True)
        mixed = [attend(one, *cache.keys_of(at, stored=stored), mask=mask) for one, at, mask in parts]
        return attention.output(torch.cat(mixed).view(states.shape))


def _attend_source(
    attention: CrossAttention | None, source: ProjectedSource, angles: Angles | None, states: Rows
) -> Rows:
    """Each row over its own source."""
    assert attention is not None
    query = attention.query(states)
    if attention.rotary:
        assert angles is not None, "rotary queries need their positions"
        query = rotate_rows(query, angles, num_heads=attention.num_heads)
    query = query.view(len(states), attention.num_heads, 1, -1)
    mixed = attend(query, source.key, source.value, mask=source.mask)
    return attention.output(mixed.flatten(1))
