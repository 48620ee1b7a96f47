"""Rows at different tokens and different depth steps, refined by one call of the block (depth-continuous decoding).

Weights are shared over depth, so that two rows at different steps differ only in their signal ``τ_t`` and in the slot
of the cache that they attend to. A row that has halted goes on to its next token while the other rows continue. A batch
costs its mean number of steps a token, not its largest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import pad

from universal_transformer.axes import Float, Index, Int, PerRow, Rows, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution import policy
from universal_transformer.execution.cache import KeyValueCache
from universal_transformer.execution.cache_store import CacheStore
from universal_transformer.execution.compaction import choose
from universal_transformer.execution.kernels import attend
from universal_transformer.execution.projection import HaltedProjection
from universal_transformer.execution.rows import Angles, rotate_rows
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.context import Context, Depth, PositionEncoding, ProjectedSource
from universal_transformer.nn.halting import accumulation_dtype
from universal_transformer.nn.recurrence import Recurrence


def stream_obstacle(recurrence: Recurrence, *, depth: Depth | None = None) -> str | None:
    """Why rows of this recurrence cannot be at different steps; None if they can. ``depth``: that of a call."""
    if recurrence.num_slots(1) != len(recurrence.blocks):
        return "plain layers stand before or after the recurrence"
    return policy.row_obstacle(recurrence, recurrence.halting if depth is None else depth.rule)


@dataclass(frozen=True)
class Alone:
    """Rows of which no two are in the same sequence."""

    def mean(self, values: PerRow) -> PerRow:
        """A row is alone."""
        return values

    def apply(self, function: Callable[[States], Tensor], states: Rows) -> Float[Tensor, "row classes"]:
        """A row is alone."""
        return function(states.unsqueeze(1))


class RowStream:
    """Sequences in a cache, each at its own token. :meth:`enter` starts tokens, :meth:`step` makes one depth step.

    It is the :class:`~universal_transformer.nn.context.RowAttention` of its rows.
    """

    def __init__(self, recurrence: Recurrence, *, rows: int, capacity: int, depth: Depth) -> None:
        if (reason := stream_obstacle(recurrence, depth=depth)) is not None:
            raise UserError(f"rows cannot be at different depth steps: {reason}")
        self.recurrence, self.depth = recurrence, depth
        blocks, coordinates = recurrence.blocks, recurrence.coordinates
        attention = blocks[0].attention
        weight = attention.query_key_value.weight
        width, device = weight.shape[1], weight.device
        signals = coordinates.signals(depth.max_steps, like=weight)
        cache = KeyValueCache(
            (depth.max_steps + 1) * len(blocks),
            batch=rows,
            num_heads=attention.num_heads,
            capacity=capacity,
            width=width,
            like=weight.detach(),
        )
        self.caches = {
            block.attention: CacheStore(
                cache,
                block.attention,
                None if number else HaltedProjection(block, signals=signals),
                depth=depth.max_steps,
                first=number,
                stride=len(blocks),
            )
            for number, block in enumerate(blocks)
        }
        reach = min(capacity, coordinates.position.reach or capacity)  # requests are checked against a learned table
        encoding = coordinates.position(torch.arange(reach, device=device).unsqueeze(0))
        signal, rotary = encoding.signal, encoding.rotary
        self.rotary = None if rotary is None else rotary[:, 0, 0]  # of every position
        self.positions = None if signal is None else signal.squeeze(0).to(weight.dtype)  # π of every position
        self.numbers = torch.arange(capacity, device=device)
        self.sequence = torch.arange(rows, device=device)
        self.position = torch.zeros_like(self.sequence)
        self.steps = torch.zeros_like(self.sequence)  # that the token of each row has made
        now = depth.rule.start(weight.new_zeros(rows, width), None)
        kind = accumulation_dtype(weight.dtype)
        self.now = replace(now, output=torch.zeros_like(now.states, dtype=kind), running=None, inputs=())
        self.context = Context(
            depth=depth,
            encoding=PositionEncoding(self.position),
            rows=self,
            sequences=Alone(),
            signals=signals,
        )
        self.sources: list[ProjectedSource] = []  # of each block, one a row, padded to the longest source so far

    def __len__(self) -> int:
        return len(self.sequence)

    def load(self, cache: KeyValueCache, *, source: int, first: int, row: int) -> None:
        """Copy sequence ``source`` of another cache, from position ``first`` on, to the beginning of ``row``."""
        count = cache.length - first
        entries = next(iter(self.caches.values())).cache.entries
        entries[: -len(self.caches), row, :count] = cache.entries[:, source, first : cache.length]

    def enter(self, states: Rows, *, at: Index, position: Index) -> None:
        """Start embedded tokens in the rows ``at``; ``position`` tokens are stored before each."""
        now, begins = self.now, not self.recurrence.coordinates.every_step
        if begins and self.positions is not None:
            states = states + self.positions.index_select(0, position)
        self.position = self.position.index_copy(0, at, position)
        self.steps = self.steps.index_fill(0, at, 0)

        def blank(part: Tensor) -> Tensor:
            return part.index_fill(0, at, 0)

        assert now.output is not None
        self.now = replace(
            now,
            states=now.states.index_copy(0, at, states),
            shown=None if now.shown is None else now.shown.index_copy(0, at, states),
            output=blank(now.output),
            steps=blank(now.steps),
            halted=blank(now.halted),
            remainder=blank(now.remainder),
            memory=tuple(map(blank, now.memory)),
        )

    def keep(self, kept: Int[Tensor, "kept"]) -> None:
        """Only the rows ``kept`` go on."""
        self.now = choose(self.now, kept)
        self.sequence, self.position, self.steps = (
            part.index_select(0, kept) for part in (self.sequence, self.position, self.steps)
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
        rule = self.depth.rule
        signal = None
        if self.recurrence.coordinates.every_step and self.positions is not None:
            signal = self.positions.index_select(0, self.position)
        context = replace(self.context, encoding=PositionEncoding(self.position, signal))
        output = self.now.output
        now = self.recurrence.advance(self.now.carried(), context, step=self.steps)
        now = rule.combine(output, now)
        self.now, self.steps = replace(now, running=None), self.steps + 1
        finished = self.steps == self.depth.max_steps
        if now.running is None:
            return finished.nonzero().squeeze(1)
        ended = (~now.running | finished).nonzero().squeeze(1)
        if len(ended):
            base = choose(now, ended).seen
            base = base if signal is None else base + signal.index_select(0, ended)
            step, sequence, position = (
                part.index_select(0, ended) for part in (self.steps, self.sequence, self.position)
            )
            for cache in self.caches.values():
                cache.write_deeper(base, step=step, sequence=sequence, position=position, angles=self._angles(position))
        return ended

    def result(self, at: Int[Tensor, "ended"]) -> tuple[Rows, Float[Tensor, "ended"], Index]:
        """The last states of rows whose token is finished, the steps that it took, and its position."""
        assert self.now.output is not None
        output, step, position = (part.index_select(0, at) for part in (self.now.output, self.steps, self.position))
        output = output.to(self.now.states.dtype)
        return self.recurrence.close(output), step.to(accumulation_dtype(output.dtype)), position

    def _angles(self, position: Index) -> Angles | None:
        """The angles of rows at ``position``, where positions are rotary."""
        return None if self.rotary is None else self.rotary.index_select(1, position)

    def attend(self, attention: SelfAttention, states: Rows, *, seen: Rows | None, slot: Tensor) -> Rows:
        """Each row over the positions up to its own, in the slot of its step."""
        del slot
        cache, size, position = self.caches[attention], len(states), self.position
        stored = int(position.max()) + 1
        where = cache.slot(self.steps, self.sequence)
        query = cache.query(states, slot=where, position=position, shown=seen, angles=self._angles(position))
        query = query.view(size, attention.num_heads, 1, -1)
        if query.device.type == "cpu":
            size = max(1, min(size, policy.MOST_GATHERED // (2 * states.shape[1] * stored)))
        visible = (self.numbers[:stored] <= position.unsqueeze(1))[:, None, None]
        parts = zip(*(torch.split(each, size) for each in (query, where, visible)), strict=True)
        mixed = [attend(queries, *cache.keys_of(at, stored=stored), mask=mask) for queries, at, mask in parts]
        return attention.output(torch.cat(mixed).view(states.shape))

    def attend_source(self, attention: CrossAttention, states: Rows, *, layer: int) -> Rows:
        """Each row over its own source."""
        query = attention.query(states)
        if attention.rotates:
            angles = self._angles(self.position)
            assert angles is not None, "rotary queries need their positions"
            query = rotate_rows(query, angles, num_heads=attention.num_heads)
        key, value, mask = self.sources[layer]
        mixed = attend(query.view(len(states), attention.num_heads, 1, -1), key, value, mask=mask)
        return attention.output(mixed.flatten(1))
