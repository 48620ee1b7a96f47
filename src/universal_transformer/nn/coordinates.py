"""Coordinates: the position and step signals of the shared block.

``P^t[i, 2j] = sin(i / 10000^(2j/d)) + sin(t / 10000^(2j/d))`` and the same with cosines in channel ``2j + 1``
(paper, section 2.1): a position part π_i plus a step part τ_t, added to the state before every step.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import nn

from universal_transformer.axes import Float, Int, Padding, Positions, States, Tensor
from universal_transformer.errors import UserError
from universal_transformer.nn.config import CoordinatesConfig, Sizes

Layout = Literal["interleaved", "split"]


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


def reverse_positions(positions: Positions, *, padding: Padding | None) -> Positions:
    """The position of the token that stands as far from the end as this one stands from the start."""
    if padding is None:
        return positions.flip(1)
    rank = count_positions(padding)
    mirrored = ((~padding).sum(1, keepdim=True) - 1 - rank).clamp(min=0)
    first = padding.long().argmin(dim=1, keepdim=True)
    return positions.expand_as(mirrored).gather(1, first + mirrored)


def fixed_rotation(width: int) -> Float[Tensor, "width width"]:
    """An orthogonal matrix that is the same everywhere: QR of a seeded normal matrix, in float64."""
    if torch.empty(0).is_meta:  # for its shape alone
        return torch.empty(width, width)
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


class PositionEncoding(NamedTuple):
    """The position part, computed once for all steps."""

    positions: Positions
    signal: Float[Tensor, "rows position width"] | None  # π
    rotary: Float[Tensor, "2 rows 1 position half"] | None  # cosines and sines
    highest: int = 0  # number of rows of a learned table that the positions use


class Coordinates(nn.Module):
    """Adds ``P^t = π + τ_t`` to states (decisions D1, D2 and D12).

    On a board (``position="grid"``), ``π_i = R[row] + C[column] + B[box]`` of three learned tables.

    In a picture, ``π_i = [S(⌊i / L⌋); S(i mod L)]``: a sinusoid ``S`` of the line and one of the place in it, each in
    half of the channels, where ``line`` L is the number of positions in a line (decision D17).

    ``max_steps``: rows of a learned step table. Variants of tensor2tensor: ``scale_step_table`` by the square root of
    its width, ``concatenate`` (``W [H; π; τ]``), ``shift_by_step`` (positions start at ``trunc(length * t / T)``).
    """

    def __init__(
        self,
        sizes: Sizes,
        config: CoordinatesConfig | None = None,
        *,
        max_steps: int = 6,
        line: int = 0,
        scale_step_table: bool = False,
        concatenate: bool = False,
        shift_by_step: bool = False,
    ) -> None:
        super().__init__()
        config = CoordinatesConfig() if config is None else config
        width = sizes.width
        self.sizes, self.config, self.line = sizes, config, line
        self.every_step, self.shift_by_step = config.injection == "every_step", shift_by_step
        adds_positions = self.every_step and config.adds
        self.step_width = 2 * width if concatenate and adds_positions else width
        self.step_scale = math.sqrt(self.step_width) if scale_step_table else 1.0
        self.position_table = self.grid_tables = self.step_table = self.join = None
        if config.position == "learned":
            self.position_table = nn.Parameter(torch.empty(config.max_positions, width))
        if config.position == "grid":
            if not (side := config.box_rows * config.box_columns):
                raise UserError('coordinates.position="grid": box_rows or box_columns is 0; take them from the data')
            self.grid_tables = nn.Parameter(torch.empty(3, side, width))
        if config.step == "learned":
            self.step_table = nn.Parameter(torch.empty(max_steps, self.step_width))
        joined = self.step_width * (1 if config.step == "none" else 2)
        if concatenate and joined > width:
            self.join = nn.Linear(joined, width, bias=False)
        self.end_rotation: Tensor | None
        self.register_buffer("end_rotation", fixed_rotation(width) if config.from_end else None)

    def encode(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        """π of ``positions`` (counted from 0; one row serves a whole batch).

        UserError when a learned table has too few rows.
        """
        signal, rotary, highest = None, None, 0
        learned = self.position_table is not None or self.grid_tables is not None
        if learned and positions.numel() and not torch.compiler.is_exporting():
            highest = int(positions.max()) + 1
        if self.config.adds:
            signal = self._signal(positions, highest=highest)
            if self.end_rotation is not None:
                mirrored = reverse_positions(positions, padding=padding)
                from_end = sinusoid(mirrored, width=self.sizes.width, layout=self.config.layout)
                signal = signal + from_end.to(self.end_rotation.dtype) @ self.end_rotation
        elif self.config.rotates:
            rotary = self.angles(positions)
        return PositionEncoding(positions, signal, rotary, highest)

    def _signal(self, positions: Positions, *, highest: int) -> Float[Tensor, "rows position width"]:
        if self.grid_tables is not None:
            return self._grid_signal(self.grid_tables, positions, highest=highest)
        if self.position_table is None and self.line:
            half = self.sizes.width // 2
            both = (positions // self.line, positions % self.line)
            return torch.cat([sinusoid(each, width=half, layout=self.config.layout) for each in both], dim=-1)
        if self.position_table is None:
            return sinusoid(positions, width=self.sizes.width, layout=self.config.layout)
        rows = self.position_table.shape[0]
        if highest > rows:
            raise UserError(
                f"position {highest} lies beyond the learned table of {rows} positions: raise "
                'coordinates.max_positions, or use coordinates.position="sinusoidal", which reaches any length'
            )
        return self.position_table[positions]

    def _grid_signal(
        self, tables: Float[Tensor, "3 line width"], positions: Positions, *, highest: int
    ) -> Float[Tensor, "rows position width"]:
        side, box_rows, box_columns = tables.shape[1], self.config.box_rows, self.config.box_columns
        if highest > side**2:
            raise UserError(f"position {highest} lies beyond the board of {side} × {side} cells that this model reads")
        row, column = positions // side, positions % side
        box = row // box_rows * box_rows + column // box_columns
        rows, columns, boxes = tables
        return rows[row] + columns[column] + boxes[box]

    def angles(self, positions: Positions) -> Float[Tensor, "2 rows 1 position half"]:
        """Cosines and sines of rotary positions (D2)."""
        half = self.sizes.width // self.sizes.num_heads // 2
        rank = torch.arange(half, device=positions.device, dtype=torch.float32)
        angle = positions.float().unsqueeze(-1) * torch.exp(-math.log(10_000.0) * rank / half)
        return torch.stack((angle.cos(), angle.sin())).unsqueeze(2)

    def step_signals(self, steps: int, *, like: Tensor) -> Float[Tensor, "step channels"] | None:
        """τ of the first ``steps`` steps, in the type and on the device of ``like``; None without step signals.

        UserError when a learned table has fewer rows.
        """
        if self.config.step == "none":
            return None
        if self.step_table is None:
            index = torch.arange(steps, device=like.device)
            return sinusoid(index, width=self.step_width, layout=self.config.layout).to(like.dtype)
        rows = self.step_table.shape[0]
        if steps > rows:
            raise UserError(
                f"step {rows + 1} lies beyond the learned table of {rows} steps: run at most "
                'that many, or train with coordinates.step="sinusoidal"'
            )
        return (self.step_table[:steps] * self.step_scale).to(like.dtype)

    def add_to_input(self, states: States, encoding: PositionEncoding) -> States:
        """``H^0 + π`` where positions are added once, at the input; the states unchanged where they are not."""
        if self.every_step or encoding.signal is None:
            return states
        return states + encoding.signal.to(states.dtype)

    def forward(
        self,
        states: States,
        encoding: PositionEncoding,
        *,
        step: int,
        num_steps: int,
        signals: Float[Tensor, "step channels"] | None,
    ) -> States:
        """``X = H + P^t`` for ``step`` of ``num_steps``, counted from 0. ``signals``: from :meth:`step_signals`."""
        signal = encoding.signal if self.every_step else None
        if signal is not None and self.shift_by_step:
            shift = int(states.shape[1] * step / num_steps)
            signal = self._signal(encoding.positions + shift, highest=encoding.highest + shift)
        moment = None if signals is None else signals[step]
        if self.join is not None:
            parts = [states]
            if signal is not None:
                parts.append(signal.expand_as(states))
            if moment is not None:
                parts.append(moment.expand(*states.shape[:2], -1))
            return self.join(torch.cat([part.to(states.dtype) for part in parts], dim=-1))
        if moment is not None:  # mostly one row of π serves the whole batch, so that this is a small sum
            moment = moment.to(states.dtype)
            signal = moment if signal is None else signal.to(states.dtype) + moment
        return states if signal is None else states + signal.to(states.dtype)
