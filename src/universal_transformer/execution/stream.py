"""Rows at different tokens and different depth steps, refined by one call of the block (depth-continuous decoding).

Weights are shared over depth, so that two rows at different steps differ only in their signal ``τ_t`` and in the slot
of the cache that they attend to. A row that has halted goes on to its next token while the other rows continue. A batch
costs its mean number of steps a token, not its largest.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.nn.functional import pad

from universal_transformer.axes import Float, Index, Int, Rows, Tensor
from universal_transformer.errors import UserError
from universal_transformer.execution import policy
from universal_transformer.execution.cache import KeyValueCache, cache_stores
from universal_transformer.execution.rows import Alone, StepOfRows, choose, rows_of
from universal_transformer.nn.context import Context, Depth, PositionEncoding, ProjectedSource
from universal_transformer.nn.halting import accumulation_dtype
from universal_transformer.nn.recurrence import Recurrence


def _source_of(source: ProjectedSource, take: Callable[[Tensor], Tensor]) -> ProjectedSource:
    """The rows that ``take`` makes of a source."""
    key, value, mask = source
    return ProjectedSource(take(key), take(value), None if mask is None else take(mask))


def stream_obstacle(recurrence: Recurrence, *, depth: Depth | None = None) -> str | None:
    """Why rows of this recurrence cannot be at different steps; None if they can. ``depth``: that of a call."""
    if recurrence.num_slots(1) != len(recurrence.blocks):
        return "plain layers stand before or after the recurrence"
    return policy.row_obstacle(recurrence, recurrence.halting if depth is None else depth.rule)


class RowStream:
    """Sequences in a cache, each at its own token. :meth:`grow` adds rows, :meth:`load` and :meth:`enter` start tokens
    in them, :meth:`step` makes one depth step. There is space for ``rows`` sequences; at first there is none.
    """

    def __init__(self, recurrence: Recurrence, *, rows: int, capacity: int, depth: Depth) -> None:
        if (reason := stream_obstacle(recurrence, depth=depth)) is not None:
            raise UserError(f"rows cannot be at different depth steps: {reason}")
        self.recurrence, self.depth = recurrence, depth
        attention, coordinates = recurrence.blocks[0].attention, recurrence.coordinates
        weight = attention.query_key_value.weight.detach()
        self.cache = KeyValueCache(
            recurrence.num_slots(depth.max_steps + 1),  # the last step receives what none reads
            batch=rows,
            num_heads=attention.key_heads,
            capacity=capacity,
            width=attention.key_width,
            like=weight,
        )
        self.stores = cache_stores(recurrence, self.cache, depth=depth.max_steps)
        reach = min(capacity, coordinates.position.reach or capacity)  # requests are checked against a learned table
        encoding = coordinates.position(torch.arange(reach, device=weight.device).unsqueeze(0))
        self.signal = None if encoding.signal is None else encoding.signal.squeeze(0)  # of every position
        self.rotary = None if encoding.rotary is None else encoding.rotary[:, 0, 0]
        self.sequence = torch.arange(0, device=weight.device)  # where each row is in the cache
        self.position = torch.zeros_like(self.sequence)
        self.steps = torch.zeros_like(self.sequence)  # that the token of each row has made
        self.limits = torch.zeros_like(self.sequence)  # the most that a token of each row may make
        now = depth.rule.start(weight.new_zeros(0, weight.shape[1]), None)
        kind = accumulation_dtype(weight.dtype)
        self.now = now._replace(output=torch.zeros_like(now.states, dtype=kind), running=None, inputs=())
        self.sources: list[ProjectedSource] = []  # of each block, one a row, padded to the longest source
        # since there was no row
        self.context = Context(
            depth=depth,
            encoding=self._encoding(self.position),
            signals=coordinates.signals(depth.max_steps, like=weight),
        )

    def __len__(self) -> int:
        return len(self.sequence)

    def _encoding(self, position: Index) -> PositionEncoding:
        """Positions of rows, encoded."""
        signal = None if self.signal is None else self.signal.index_select(0, position)
        rotary = None if self.rotary is None else self.rotary.index_select(1, position)
        return PositionEncoding(position, signal, rotary)

    def grow(self, count: int) -> None:
        """Add rows, in places of the cache that are free."""
        taken = set(self.sequence.tolist())
        free = [place for place in range(self.cache.entries.shape[1]) if place not in taken]

        def longer(part: Tensor) -> Tensor:
            return torch.cat((part, part.new_zeros(count, *part.shape[1:])))

        self.now = rows_of(self.now, longer)
        self.sequence = torch.cat((self.sequence, self.sequence.new_tensor(free[:count])))
        self.position, self.steps, self.limits = map(longer, (self.position, self.steps, self.limits))
        self.sources = [_source_of(source, longer) for source in self.sources]

    def load(
        self,
        cache: KeyValueCache,
        source: Sequence[ProjectedSource] | None,
        *,
        sequence: int,
        fed: int,
        at: int,
        max_steps: int,
    ) -> None:
        """Let the row ``at`` continue a ``sequence`` of another cache, of which the last ``fed`` positions are stored,
        and attend to the same sequence of ``source``, which has one entry for each block.

        A token of the row makes at most ``max_steps`` steps, which are no more than those of the stream.
        """
        self.limits[at] = max_steps
        entries = cache.entries[:, sequence, cache.length - fed : cache.length]
        self.cache.entries[: len(entries), self.sequence[at], :fed] = entries
        if source is not None:
            kept: list[ProjectedSource | None] = [*self.sources] or [None] * len(source)
            pairs = zip(kept, source, strict=True)
            self.sources = [self._attached(old, new, row=sequence, at=at) for old, new in pairs]

    def enter(self, states: Rows, *, at: Index, position: Index) -> None:
        """Start embedded tokens in the rows ``at``; ``position`` tokens are stored before each."""
        states = self.recurrence.coordinates.start(states, self._encoding(position))
        self.position = self.position.index_copy(0, at, position)
        self.steps = self.steps.index_fill(0, at, 0)
        blank, now = rows_of(self.now, lambda part: part.index_fill(0, at, 0)), self.now
        shown = None if now.shown is None else now.shown.index_copy(0, at, states)
        self.now = blank._replace(states=now.states.index_copy(0, at, states), shown=shown)

    def keep(self, kept: Int[Tensor, "kept"]) -> None:
        """Only the rows ``kept`` go on."""
        self.now = choose(self.now, kept)
        self.sequence, self.position, self.steps, self.limits = (
            part.index_select(0, kept) for part in (self.sequence, self.position, self.steps, self.limits)
        )
        self.sources = [_source_of(source, lambda part: part[kept]) for source in self.sources if len(kept)]

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
        rows = Alone(self.sequence, self.position)
        call = replace(
            self.context,
            encoding=self._encoding(self.position),
            sequences=rows,
            source=self.sources or None,
            lengths=self.limits,
        )
        at = replace(call, rows=StepOfRows(call, rows, self.stores, self.steps, call.encoding.rotary))
        now = self.recurrence.advance(self.now, at, step=self.steps)
        self.now, self.steps = now._replace(running=None), self.steps + 1
        finished = self.steps == self.limits
        if now.running is None:
            return finished.nonzero().squeeze(1)
        ended = (~now.running | finished).nonzero().squeeze(1)
        if len(ended):
            steps, where = self.steps.index_select(0, ended), self._encoding(self.position.index_select(0, ended))
            base = self.recurrence.coordinates(choose(now, ended).seen, where, step=0, signals=None)
            layout = Alone(self.sequence.index_select(0, ended), where.positions)
            for store in self.stores.values():
                store.write_deeper(base, step=steps, layout=layout, angles=where.rotary)
        return ended

    def result(self, at: Int[Tensor, "ended"]) -> tuple[Rows, Float[Tensor, "ended"], Index]:
        """The last states of rows whose token is finished, the steps that it took, and its position."""
        assert self.now.output is not None
        output, step, position = (part.index_select(0, at) for part in (self.now.output, self.steps, self.position))
        output = output.to(self.now.states.dtype)
        return self.recurrence.close(output), step.to(accumulation_dtype(output.dtype)), position
