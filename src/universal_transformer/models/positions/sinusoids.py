"""Positions of sinusoids beyond the paper's: of lines and columns of a picture, and counted from the end too."""

from typing import Any

import torch

from universal_transformer.axes import Float, Padding, Positions, Tensor
from universal_transformer.models.components import CoordinatesConfig
from universal_transformer.models.positions.numbering import draw_positions, reverse_positions
from universal_transformer.nn.context import PositionEncoding
from universal_transformer.nn.coordinates import Layout, PositionEncoder, SinusoidalPositions, sinusoid


class PicturePositions(PositionEncoder):
    """``π_i = [S(⌊i / L⌋); S(i mod L)]``: sinusoids S of the line and of the place in it; ``line`` L (D17)."""

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


def fixed_rotation(width: int) -> Float[Tensor, "width width"]:
    """An orthogonal matrix that is the same everywhere: QR of a seeded normal matrix, in float64."""
    if torch.empty(0).is_meta:  # for its shape alone
        return torch.empty(width, width)
    generator = torch.Generator().manual_seed(1807_03819)
    q, r = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
    return (q * r.diagonal().sign()).float()


class FromBothEnds(PositionEncoder):
    """``π_i + S(n - 1 - i) Q``: the sinusoid of the distance from the end, rotated by a fixed matrix (decision D12).

    Training with offsets draws i again: of one draw the two differ by less than n, and by more in longer sources.
    """

    end_rotation: Tensor

    def __init__(self, start: PositionEncoder, width: int, *, config: CoordinatesConfig) -> None:
        super().__init__()
        self.start, self.width, self.config, self.reach = start, width, config, start.reach
        self.register_buffer("end_rotation", fixed_rotation(width))

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        mirrored = reverse_positions(positions, padding=padding)
        if self.training and self.config.offsets != "none":
            positions = draw_positions(self.config, *positions.shape, device=positions.device)
        encoding = self.start(positions, padding=padding)
        from_end = sinusoid(mirrored, width=self.width, layout=self.config.layout).to(self.end_rotation.dtype)
        return encoding._replace(signal=encoding.signal + from_end @ self.end_rotation)
