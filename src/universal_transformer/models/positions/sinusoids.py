"""Positions beyond the paper's: of lines and columns of a picture, and of a source counted from its end."""

from typing import Any

import torch

from universal_transformer.axes import Padding, Positions
from universal_transformer.models.positions.numbering import reverse_positions
from universal_transformer.nn.context import PositionEncoding
from universal_transformer.nn.coordinates import Layout, PositionEncoder, SinusoidalPositions, sinusoid


class PicturePositions(PositionEncoder):
    """``π_i = [S(⌊i / L⌋); S(i mod L)]``: a sinusoid S of the line and one of the place in it, each in half of the
    channels, where ``line`` L is the number of positions in a line (decision D17).
    """

    def __init__(self, width: int, *, line: int, layout: Layout = "interleaved") -> None:
        super().__init__()
        self.width, self.line, self.layout = width, line, layout

    @classmethod
    def build(cls, config: Any, *, decoder: bool) -> PositionEncoder:
        """Those of a side that has lines; of others the sinusoids of the paper."""
        if not (line := config.line_of(decoder=decoder)):
            return SinusoidalPositions.build(config, decoder=decoder)
        return cls(config.sizes.width, line=line, layout=config.coordinates.layout)

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        del padding
        both = (positions // self.line, positions % self.line)
        signal = [sinusoid(each, width=self.width // 2, layout=self.layout) for each in both]
        return PositionEncoding(positions, torch.cat(signal, dim=-1))


class FromEnd(PositionEncoder):
    """``π_(n-1-i)``: the positions of a source of n tokens, counted from its last one (decision D12)."""

    def __init__(self, counted: PositionEncoder) -> None:
        super().__init__()
        self.counted, self.reach = counted, counted.reach

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        return self.counted(reverse_positions(positions, padding=padding), padding=padding)
