"""Depth-continuous encoding: sequences at different depth steps, refined by one call of the block.

Weights are shared over depth: rows at different steps differ only in ``τ_t`` and in what they see of others
(``nn/refresh.py``). A sequence whose positions have all halted leaves its slot and the next one takes it, so that the
rows of a call do not become few as those of a batch do. The first step of a sequence is made for all of its positions,
with those that enter beside it; from the second on the running positions of all slots share each call.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch
from torch.nn.functional import linear, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from universal_transformer.axes import Both, Float, Index, Int, PerRow, Rows, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.attention import key_mask
from universal_transformer.nn.coordinates import Placed
from universal_transformer.nn.halting import (
    Halting,
    advance,
    check_threshold,
    combine,
    contribution,
    decide,
    fold,
    wide,
)
from universal_transformer.nn.ragged import find
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.nn.refresh import Kept, Refresh, read
from universal_transformer.nn.store import Store

Sequence = Float[Tensor, "_ width"]  # each of a length of its own

ENTER = 1024
"""Positions that enter together, about. Entering all at once would only make a batch of them again."""


def streams(recurrence: Recurrence) -> bool:
    """Whether sequences at different steps may share a call: an encoder that leaves out what has halted."""
    return (
        not recurrence.decoder
        and not (len(recurrence.before) or len(recurrence.after))
        and recurrence.halting is not None
        and recurrence.halting.scope == "position"
        and recurrence.compactible
    )


class Encoded(NamedTuple):
    """What became of a sequence: its states, and ``N`` and ``R`` of its positions."""

    states: Sequence
    steps: Float[Tensor, "position"]
    remainder: Float[Tensor, "position"]


class Running(NamedTuple):
    """What the rows that run carry. They stand in the order of ``place``: ``slot * length + position``."""

    place: Index
    slot: Index
    base: Rows  # h + π
    signal: Rows | None  # π, where it is added at every step
    cumulative: PerRow

    def choose(self, kept: Int[Tensor, "kept"]) -> "Running":
        """Only the rows ``kept``, in that order."""
        return Running(*(None if part is None else part.index_select(0, kept) for part in self))  # type: ignore[arg-type]

    def join(self, other: "Running") -> "Running":
        """Both, sorted."""
        pairs = zip(self, other, strict=True)
        parts = [None if one is None or two is None else torch.cat((one, two)) for one, two in pairs]
        return Running(*parts).choose(torch.cat((self.place, other.place)).argsort())  # type: ignore[arg-type]


class StreamEncoder:
    """``slots`` sequences of at most ``length`` positions, each at a depth step of its own.

    :meth:`enter` puts sequences into free slots, :meth:`tick` makes one step of all, :meth:`take` empties a slot that
    is through. Without gradients, for a recurrence in evaluation mode.
    """

    def __init__(
        self,
        recurrence: Recurrence,
        *,
        slots: int,
        length: int,
        max_steps: int | None = None,
        threshold: float | None = None,
    ) -> None:
        assert streams(recurrence)
        assert not recurrence.training
        block, unit, coordinates = recurrence.block, recurrence.halting, recurrence.coordinates
        assert unit is not None
        self.recurrence, self.block, self.unit = recurrence, block, unit
        self.depth = recurrence.depth(max_steps)
        self.threshold = check_threshold(recurrence.threshold if threshold is None else threshold)
        self.length = length
        like = block.attention.query_key_value.weight
        places, exact = slots * length, wide(like.dtype)
        self.signals = coordinates.step_signals(self.depth, like=like)
        self.refresh = Refresh(block, signals=self.signals)
        self.store = Store(block.attention, self.refresh, batch=slots, mask=None, causal=False)
        variance = like.new_ones(places, self.depth, dtype=exact) if self.refresh.moves else None
        self.kept = Kept(like.new_zeros(places, 2 * like.shape[1]), variance)
        self.output = like.new_zeros(places, like.shape[1], dtype=exact)
        self.taken, self.remainder = (like.new_zeros(places, dtype=exact) for _ in range(2))
        self.step, self.lengths, self.counts = [0] * slots, [0] * slots, [0] * slots
        self.rows: Running | None = None

    @property
    def free(self) -> list[int]:
        """Slots without a sequence."""
        return [slot for slot, length in enumerate(self.lengths) if not length]

    @property
    def ended(self) -> list[int]:
        """Slots whose sequence is through."""
        return [slot for slot, length in enumerate(self.lengths) if length and not self.counts[slot]]

    @torch.inference_mode()
    def enter(self, sequences: list[Sequence], *, slots: list[int]) -> None:
        """Make the first step of sequences (embedded, positions from 0), which take ``slots``; UserError by length."""
        lengths = [len(sequence) for sequence in sequences]
        if not 1 <= min(lengths) <= max(lengths) <= self.length:
            raise UserError(
                f"sequences of {min(lengths)} to {max(lengths)} positions, where 1 to {self.length} can be encoded"
            )
        states = pad_sequence(sequences, batch_first=True)
        where = torch.arange(states.shape[1], device=states.device)
        padding = None
        if min(lengths) < len(where):
            padding = where >= torch.tensor(lengths, device=where.device).unsqueeze(1)
        coordinates = self.recurrence.coordinates
        placed = coordinates.place(where.unsqueeze(0), padding=padding)
        states = coordinates.enter(states, placed)
        timed = coordinates(states, placed=placed, step=0, num_steps=self.depth, signals=self.signals)
        before, only = Halting.start(states, padding=padding), self.depth == 1
        stop = only and self.recurrence.remainder_at_cap
        halting, weight = advance(before, self.unit(timed), threshold=self.threshold, stop=stop)
        new = self.block(timed, mask=None if padding is None else key_mask(padding))
        made, rule = contribution(new, weight, rule=self.recurrence.output), self.recurrence.output
        output = combine(torch.zeros_like(made), made, weight, active=before.running, rule=rule)
        at = torch.tensor(slots, device=where.device)
        places = (at.unsqueeze(1) * self.length + where).flatten()
        base, signal = self._place(new, placed)
        self._write(places, base)
        storages = self.output, self.taken, self.remainder
        for storage, found in zip(storages, (output, halting.steps, halting.remainder), strict=True):
            storage.index_copy_(0, places, found.flatten(0, 1).to(storage.dtype))
        running = halting.running & (not only)
        counts = running.sum(1).tolist()
        entered = Running(
            places, at.repeat_interleave(len(where)), base, signal, halting.cumulative.flatten()
        )
        entered = entered.choose(find(running.flatten(), count=sum(counts)))
        self.rows = entered if self.rows is None else self.rows.join(entered)
        for slot, length, count in zip(slots, lengths, counts, strict=True):
            self.step[slot], self.lengths[slot], self.counts[slot] = 1, length, count

    def _place(self, new: States, placed: Placed) -> tuple[Rows, Rows | None]:
        """``h + π`` and ``π`` of all positions, row by row."""
        if placed.signal is None or not self.recurrence.coordinates.every_step:
            return new.flatten(0, 1), None
        signal = placed.signal.to(new.dtype).expand_as(new)
        return (new + signal).flatten(0, 1), signal.reshape(-1, new.shape[2])

    @torch.inference_mode()
    def take(self, slot: int) -> Encoded:
        """What became of the sequence in ``slot``, which is free again."""
        assert not self.counts[slot]
        first, norm = slot * self.length, self.recurrence.closing_norm
        its = slice(first, first + self.lengths[slot])
        self.lengths[slot] = 0
        states = self.output[its].to(self.kept.rows.dtype, copy=True)
        if norm is not None:
            states = norm(states)
        return Encoded(states, self.taken[its].clone(), self.remainder[its].clone())

    @torch.inference_mode()
    def tick(self) -> None:
        """One step of every slot: running positions only."""
        rows = self.rows
        assert rows is not None
        reached = torch.tensor(self.step, device=rows.place.device)
        steps = reached.clamp_(max=self.depth - 1)  # a slot may be free
        step = steps.index_select(0, rows.slot)
        timed = rows.base if self.signals is None else rows.base + self.signals.index_select(0, step)
        last = step == self.depth - 1
        total, weight, over = decide(
            rows.cumulative,
            self.unit.each(timed.unsqueeze(0)).squeeze(0),
            threshold=self.threshold,
            stop=last if self.recurrence.remainder_at_cap else False,
        )
        new = self.block.forward_rows(timed, attend=lambda x: self._attend(x, steps, step), look=None)
        fold(self.output, rows.place, new, weight, rule=self.recurrence.output)
        self.taken.index_copy_(0, rows.place, (step + 1).to(self.taken.dtype))
        self.remainder.index_copy_(0, rows.place, weight * over)
        base = new if rows.signal is None else new + rows.signal
        self._write(rows.place, base)
        staying = (total < 1.0) & ~last
        self.counts = torch.zeros_like(steps).index_add_(0, rows.slot, staying.long()).tolist()
        self.step = [step + 1 for step in self.step]
        stayed = find(staying, count=sum(self.counts))
        self.rows = rows._replace(base=base, cumulative=total).choose(stayed)

    def _write(self, index: Index, base: Rows) -> None:
        """Let others see rows at ``b``."""
        for storage, rows in zip(self.kept, self.refresh.keep(base), strict=True):
            if storage is not None and rows is not None:
                storage.index_copy_(0, index, rows.to(storage.dtype))

    def _seen(self, steps: Int[Tensor, "slot"]) -> Both:
        """Keys and values of all slots, each as its step sees them."""
        rows, variance = self.kept
        if variance is None or self.refresh.part is None:
            return rows
        step = steps.repeat_interleave(self.length)
        part = self.refresh.part.index_select(0, step)
        return read(rows, variance.gather(1, step.unsqueeze(1)).squeeze(1), part)

    def _attend(self, states: Rows, steps: Int[Tensor, "slot"], step: Index) -> Rows:
        """Self-attention of running rows, sequence by sequence: nothing is padded."""
        attention = self.block.attention
        key, value = self.store.heads(self._seen(steps))
        query = linear(states, self.store.weight, self.store.bias)
        query = query.view(1, len(states), key.shape[1], -1).transpose(1, 2)
        found, first = list[Tensor](), 0
        for slot, count in enumerate(self.counts):
            if count:
                seen = slice(self.lengths[slot])
                asked = query[:, :, first : first + count]
                its_key, its_value = (part[slot : slot + 1, :, seen] for part in (key, value))
                one = scaled_dot_product_attention(asked, its_key, its_value)
                found.append(one.transpose(1, 2).reshape(count, -1))
                first += count
        result = torch.cat(found)
        weight = attention.output.weight
        constant = self.store.mixed  # of values, behind the output projection
        if constant is None or constant.dim() == 1:
            return linear(result, weight, constant)
        return torch.addmm(constant.index_select(0, step), result, weight.t())


def encode_continuously(
    recurrence: Recurrence,
    sequences: Iterable[Sequence],
    *,
    slots: int = 64,
    capacity: int,
    max_steps: int | None = None,
    threshold: float | None = None,
) -> Iterator[tuple[int, Encoded]]:
    """Yield the number (from 0) of each sequence and what it becomes, as soon as it is through.

    What comes out is what the recurrence makes of it alone, whatever the order. ``slots`` sequences of up to
    ``capacity`` positions are worked on at a time; ``sequences`` (embedded, without padding) are read as slots come
    free. Raises UserError for a sequence of no positions or more than ``capacity``.
    """
    if min(slots, capacity) < 1:
        raise UserError(f"slots={slots}, capacity={capacity}: at least 1 each")
    encoder = StreamEncoder(
        recurrence, slots=slots, length=capacity, max_steps=max_steps, threshold=threshold
    )
    return _stream(encoder, enumerate(sequences), group=max(1, min(slots, ENTER // capacity)))


def _stream(
    encoder: StreamEncoder, waiting: Iterator[tuple[int, Sequence]], *, group: int
) -> Iterator[tuple[int, Encoded]]:
    """``group`` sequences enter at a time."""
    numbers, more = dict[int, int](), True
    while True:
        free = encoder.free
        if more and len(free) >= group:
            chunk = list(islice(waiting, group))
            more = len(chunk) == group
            if chunk:
                encoder.enter([sequence for _, sequence in chunk], slots=free[: len(chunk)])
                numbers.update(zip(free, (number for number, _ in chunk), strict=False))
        if not numbers:
            return
        if any(encoder.counts):
            encoder.tick()
        yield from [(numbers.pop(slot), encoder.take(slot)) for slot in encoder.ended]
