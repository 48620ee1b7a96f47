"""Coordinates: what tells the shared block where and when it is.

``P^t[i, 2j] = sin(i / 10000^(2j/d)) + sin(t / 10000^(2j/d))`` and the same with cosines in channel ``2j + 1``
(paper, section 2.1): a position part π_i plus a step part τ_t, added to the state before every step.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import nn

from universal_transformer.axes import Bool, Float, Int, Padding, Positions, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.straight import is_straight

Layout = Literal["interleaved", "split"]
PositionPart = Literal["sinusoidal", "learned", "rotary", "none"]
StepPart = Literal["sinusoidal", "learned", "none"]
Offsets = Literal["none", "random", "scattered", "spread"]


def sinusoid(
    index: Float[Tensor, "*index"] | Int[Tensor, "*index"], *, width: int, layout: Layout = "interleaved"
) -> Float[Tensor, "*index width"]:
    """``sin`` and ``cos`` of ``index`` at ``width / 2`` frequencies.

    ``interleaved``: frequencies ``10000^(-2j/d)``, sine in channel ``2j``, cosine in ``2j + 1``, indices counted
    from 1 (paper, equations 6 and 7). ``split``: frequencies ``10000^(-j/(d/2 - 1))``, all sines, then all
    cosines, indices counted from 0 (tensor2tensor). ``index`` itself counts from 0 in both.
    """
    half = width // 2
    rank = torch.arange(half, device=index.device, dtype=torch.float32)
    exponent = 2 * rank / width if layout == "interleaved" else rank / max(half - 1, 1)
    frequency = torch.exp(-math.log(10_000.0) * exponent)
    angle = (index.float() + (layout == "interleaved")).unsqueeze(-1) * frequency
    pair = torch.sin(angle), torch.cos(angle)
    return torch.stack(pair, dim=-1).flatten(-2) if layout == "interleaved" else torch.cat(pair, dim=-1)


def count_positions(padding: Padding) -> Positions:
    """Positions of the real tokens, counted from 0, wherever the padding stands."""
    return ((~padding).long().cumsum(dim=1) - 1).clamp(min=0)


def draw_positions(
    batch: int, length: int, *, offsets: Offsets, max_positions: int, device: torch.device | None = None
) -> Int[Tensor, "rows length"]:
    """Positions to train on, so that the positions of longer test sequences have all been met.

    ``none``: 0, 1, 2 … (one row for all). ``random``: one offset per sequence, uniform over
    ``[0, max_positions - length]``. ``scattered``: a sorted random subset of ``max_positions`` positions per
    sequence (randomised positions; Ruoss et al. 2023). ``spread``: such a subset of a random window, whose length
    is log-uniform between ``length`` and ``max_positions``: neighbours are met as often as far-off positions.

    Raises UserError when ``length`` exceeds ``max_positions``.
    """
    if offsets == "none":
        return torch.arange(length, device=device).unsqueeze(0)
    if length > max_positions:
        raise UserError(
            f"a sequence of {length} positions cannot be given an offset within max_positions={max_positions}: "
            "raise max_positions or shorten the sequence"
        )
    if offsets == "random":
        first = torch.randint(max_positions - length + 1, (batch, 1), device=device)
        return first + torch.arange(length, device=device)
    order = torch.rand(batch, max_positions, device=device)
    if offsets == "spread":
        part = torch.rand(2, batch, 1, device=device)
        window = (length * (max_positions / length) ** part[0]).round()
        first = (part[1] * (max_positions - window + 1)).floor()
        place = torch.arange(max_positions, device=device)
        order = order.masked_fill((place < first) | (place >= first + window), 2.0)
    chosen = order.argsort(dim=1)[:, :length]
    return chosen.sort(dim=1).values


def reverse_positions(positions: Positions, *, padding: Padding | None) -> Positions:
    """The position of the token that stands as far from the end as this one stands from the start."""
    if padding is None:
        return positions.flip(1)
    rank = count_positions(padding)
    mirrored = ((~padding).sum(1, keepdim=True) - 1 - rank).clamp(min=0)
    first = padding.long().argmin(dim=1, keepdim=True)
    return positions.expand_as(mirrored).gather(1, first + mirrored)


def count_separators(separators: Bool[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
    """How many separators stand to the left: the number of the part, of which a separator is the last token."""
    return separators.long().cumsum(dim=1) - separators.long()


def restart_positions(
    positions: Positions, *, separators: Bool[Tensor, "batch position"], padding: Padding
) -> Int[Tensor, "batch position"]:
    """Positions that begin again behind every separator.

    The i-th token of every part gets the i-th of ``positions``, so that tokens of equal rank stand at equal places
    (position coupling; Cho et al. 2024). Padding gets a place of no meaning.
    """
    rank = count_positions(padding)
    behind = torch.where(separators, rank + 1, 0).cummax(dim=1).values
    begin = torch.cat((torch.zeros_like(behind[:, :1]), behind[:, :-1]), dim=1)
    first = padding.long().argmin(dim=1, keepdim=True)
    return positions.expand_as(rank).gather(1, (first + rank - begin).clamp(min=0))


def fixed_rotation(width: int) -> Float[Tensor, "width width"]:
    """An orthogonal matrix that is the same everywhere: QR of a seeded normal matrix, in float64."""
    generator = torch.Generator().manual_seed(1807_03819)
    q, r = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
    return (q * r.diagonal().sign()).float()


def rotate(
    heads: Float[Tensor, "batch heads position head"],
    *,
    rotary: Float[Tensor, "2 rows #heads position half"],
) -> Float[Tensor, "batch heads position head"]:
    """Rotary position embedding: channel pairs turned by an angle proportional to the position (Su et al. 2021)."""
    cosine, sine = rotary.to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Placed(NamedTuple):
    """Positions made ready for all steps: what is added at each step, and the rotary angles.

    ``longest``: rows of a learned table that they take.
    """

    where: Positions
    signal: Float[Tensor, "rows position width"] | None
    rotary: Float[Tensor, "2 rows 1 position half"] | None
    longest: int = 0


class Coordinates(nn.Module):
    """Adds (or concatenates) position and step signals to states.

    Arguments are the decisions D1, D2, D12 and their tensor2tensor variants:
    ``every_step``: position part at every step (paper) or once, by :meth:`enter`.
    ``shift_by_step``: positions start at ``trunc(length * t / T)`` at step ``t`` (t2t's start index "step").
    ``concatenate``: ``W [H; π; τ]`` in place of ``H + π + τ``.
    ``end``: also add the rotated sinusoid of the distance from the last real position.
    """

    def __init__(
        self,
        width: int,
        *,
        num_heads: int,
        layout: Layout = "interleaved",
        position: PositionPart = "sinusoidal",
        step: StepPart = "sinusoidal",
        max_positions: int = 512,
        max_steps: int = 6,
        scale_step_table: bool = False,
        concatenate: bool = False,
        every_step: bool = True,
        shift_by_step: bool = False,
        end: bool = False,
    ) -> None:
        super().__init__()
        self.width, self.head_width, self.layout = width, width // num_heads, layout
        self.num_heads = num_heads
        self.position, self.step = position, step
        self.every_step, self.shift_by_step = every_step, shift_by_step
        in_loop = every_step and position in ("sinusoidal", "learned")
        step_width = 2 * width if concatenate and in_loop else width
        self.step_scale = math.sqrt(step_width) if scale_step_table else 1.0
        self.position_table = (
            nn.Parameter(torch.empty(max_positions, width)) if position == "learned" else None
        )
        self.step_table = nn.Parameter(torch.empty(max_steps, step_width)) if step == "learned" else None
        self.step_width = step_width
        joined = step_width + (step_width if step != "none" else 0)
        self.join = nn.Linear(joined, width, bias=False) if concatenate and joined > width else None
        self.end_rotation: Tensor | None
        self.register_buffer("end_rotation", fixed_rotation(width) if end else None)

    def _longest(self, where: Positions) -> int:
        if self.position_table is None or is_straight() or not where.numel():
            return 0
        return int(where.max()) + 1  # the one thing asked of a GPU, once for all steps

    def _signal(self, index: Positions, *, longest: int) -> Float[Tensor, "rows position width"]:
        if self.position_table is None:
            return sinusoid(index, width=self.width, layout=self.layout)
        length = self.position_table.shape[0]
        if longest > length:
            raise UserError(
                f"position {longest} lies beyond the learned table of {length} positions: raise max_positions "
                'or use position_coordinates="sinusoidal", which reaches any length'
            )
        return self.position_table[index]

    def place(self, where: Positions, *, padding: Padding | None = None) -> Placed:
        """Prepare ``where`` (positions from 0; one row serves a whole batch) for :meth:`forward`."""
        signal, rotary, longest = None, None, self._longest(where)
        if self.position in ("sinusoidal", "learned"):
            signal = self._signal(where, longest=longest)
            if self.end_rotation is not None:
                mirrored = reverse_positions(where, padding=padding)
                from_end = sinusoid(mirrored, width=self.width, layout=self.layout)
                signal = signal + from_end.to(self.end_rotation.dtype) @ self.end_rotation
        elif self.position == "rotary":
            rotary = self._angles(where)
        return Placed(where, signal, rotary, longest)

    def _angles(self, where: Positions) -> Float[Tensor, "2 rows 1 position half"]:
        half = self.head_width // 2
        rank = torch.arange(half, device=where.device, dtype=torch.float32)
        angle = where.float().unsqueeze(-1) * torch.exp(-math.log(10_000.0) * rank / half)
        return torch.stack((angle.cos(), angle.sin())).unsqueeze(2)

    def place_source(
        self, where: Positions, *, padding: Padding | None, from_end: bool
    ) -> Float[Tensor, "2 rows #heads position half"]:
        """Rotary angles of what a decoder looks at; ``from_end``: half of the heads count from the last position."""
        angles = self._angles(where)
        if not from_end:
            return angles
        mirrored = self._angles(reverse_positions(where, padding=padding))
        each = (2, max(len(where), mirrored.shape[1]), self.num_heads // 2, *angles.shape[3:])
        return torch.cat((angles.expand(each), mirrored.expand(each)), dim=2)

    def step_signals(self, steps: int, *, like: Tensor) -> Float[Tensor, "step channels"] | None:
        """τ of the first ``steps`` steps, in type and on the device of ``like``; None when steps are not told.

        UserError when a learned table has fewer rows.
        """
        if self.step == "none":
            return None
        if self.step_table is None:
            index = torch.arange(steps, device=like.device)
            return sinusoid(index, width=self.step_width, layout=self.layout).to(like.dtype)
        learned = self.step_table.shape[0]
        if steps > learned:
            raise UserError(
                f"step {learned + 1} lies beyond the learned table of {learned} steps: run at most "
                'that many, or train with step_coordinates="sinusoidal"'
            )
        return (self.step_table[:steps] * self.step_scale).to(like.dtype)

    def enter(self, states: States, placed: Placed) -> States:
        """The position part, once, in front of everything (when it is not added at every step)."""
        if self.every_step or placed.signal is None:
            return states
        return states + placed.signal.to(states.dtype)

    def forward(
        self,
        states: States,
        *,
        placed: Placed,
        step: int,
        num_steps: int,
        signals: Float[Tensor, "step channels"] | None,
    ) -> States:
        """``X = H + P^t`` for step ``step`` of ``num_steps``, counted from 0. ``signals``: :meth:`step_signals`."""
        signal = placed.signal if self.every_step else None
        if signal is not None and self.shift_by_step:
            shift = int(states.shape[1] * step / num_steps)
            signal = self._signal(placed.where + shift, longest=placed.longest + shift)
        moment = None if signals is None else signals[step]
        if self.join is not None:
            parts = [states]
            if signal is not None:
                parts.append(signal.expand_as(states))
            if moment is not None:
                parts.append(moment.expand(*states.shape[:2], -1))
            return self.join(torch.cat([part.to(states.dtype) for part in parts], dim=-1))
        if moment is not None:  # one row serves a whole batch, mostly, so that this is the small sum
            moment = moment.to(states.dtype)
            signal = moment if signal is None else signal.to(states.dtype) + moment
        return states if signal is None else states + signal.to(states.dtype)
