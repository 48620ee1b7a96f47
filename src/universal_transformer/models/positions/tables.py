"""Positions with learned vectors: one for each position, or one for the row, the column and the box of a cell."""

from typing import Any

import torch
from torch import nn

from universal_transformer.axes import Float, Padding, Positions, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.components import needed
from universal_transformer.nn.context import PositionEncoding
from universal_transformer.nn.coordinates import PositionEncoder, StepEncoder


def _largest(positions: Positions) -> int:
    """The number of positions that a table needs; 0 in an export, where it is not known."""
    return int(positions.max()) + 1 if positions.numel() and not torch.compiler.is_exporting() else 0


class Table(nn.Module):
    """Learned vectors ``weight``."""

    weight: nn.Parameter

    def initialise(self) -> None:
        """Normal, standard deviation ``width^-1/2``."""
        nn.init.normal_(self.weight, std=self.weight.shape[-1] ** -0.5)


class LearnedPositions(Table, PositionEncoder):
    """``π_i = E[i]``. UserError for a position beyond the table."""

    def __init__(self, width: int, *, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        self.reach = rows

    @classmethod
    def build(cls, config: Any, *, decoder: bool) -> PositionEncoder:
        del decoder
        return cls(config.sizes.width, rows=config.coordinates.max_positions)

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        del padding
        if (highest := _largest(positions)) > len(self.weight):
            raise UserError(
                f"position {highest} lies beyond the learned table of {len(self.weight)} positions: raise "
                'coordinates.max_positions, or use coordinates.position="sinusoidal", which reaches any length'
            )
        return PositionEncoding(positions, self.weight[positions])


class GridPositions(Table, PositionEncoder):
    """``π_i = R[row] + C[column] + B[box]`` of the cell i of a board. UserError for a position beyond the board."""

    def __init__(self, width: int, *, box_rows: int, box_columns: int) -> None:
        super().__init__()
        side = box_rows * box_columns
        self.box_rows, self.box_columns, self.reach = box_rows, box_columns, side**2
        self.weight = nn.Parameter(torch.empty(3, side, width))

    @classmethod
    def build(cls, config: Any, *, decoder: bool) -> PositionEncoder:
        del decoder
        chosen, by = config.coordinates, 'position="grid" needs the boxes of the board'
        rows, columns = (needed(getattr(chosen, f), f"coordinates.{f}", by=by) for f in ("box_rows", "box_columns"))
        return cls(config.sizes.width, box_rows=rows, box_columns=columns)

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        del padding
        side = self.weight.shape[1]
        if (highest := _largest(positions)) > side**2:
            raise UserError(f"position {highest} lies beyond the board of {side} × {side} cells that this model reads")
        row, column = positions // side, positions % side
        box = row // self.box_rows * self.box_rows + column // self.box_columns
        rows, columns, boxes = self.weight
        return PositionEncoding(positions, rows[row] + columns[column] + boxes[box])


class LearnedSteps(Table, StepEncoder):
    """``τ_t = s E[t]``; ``scale`` s. UserError for a step beyond the table."""

    def __init__(self, width: int, *, rows: int, scale: float = 1.0) -> None:
        super().__init__(width)
        self.weight, self.scale = nn.Parameter(torch.empty(rows, width)), scale

    def forward(self, steps: int, *, like: Tensor) -> Float[Tensor, "step channels"]:
        if steps > len(self.weight):
            raise UserError(
                f"step {len(self.weight) + 1} lies beyond the learned table of {len(self.weight)} steps: run at most "
                'that many, or train with coordinates.step="sinusoidal"'
            )
        return (self.weight[:steps] * self.scale).to(like.dtype)
