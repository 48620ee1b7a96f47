"""Rotary positions: queries and keys are rotated by angles of their positions (Su et al. 2021; D2 and D13)."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from universal_transformer.axes import Float, Heads, Padding, Positions, States, Tensor, Weights
from universal_transformer.models.positions.numbering import reverse_positions
from universal_transformer.nn.attention import CrossAttention, SelfAttention, split_heads
from universal_transformer.nn.context import Angles, PositionEncoding, ProjectedSource
from universal_transformer.nn.coordinates import PositionEncoder
from universal_transformer.nn.step_config import AttentionConfig, Sizes


def rotate(
    heads: Float[Tensor, "batch heads position head"], *, rotary: Angles
) -> Float[Tensor, "batch heads position head"]:
    """Channel pairs turned by an angle proportional to the position."""
    cosine, sine = rotary.to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class RotarySelfAttention(SelfAttention):
    """Attention that depends on the distance of positions."""

    by_rows = rotates = True

    def place(self, heads: Heads, encoding: PositionEncoding) -> Heads:
        assert encoding.rotary is not None
        return rotate(heads, rotary=encoding.rotary)


class RotaryCrossAttention(CrossAttention):
    """Attention to a source by distance, with a sink (decision D13).

    ``config.rotary_source``: queries and keys are rotated by their positions, so that attention to an equal position
    depends on the distance only. ``config.source_sink``: one more key, of zeros with a learned value, after the
    source, for queries that match nothing there.
    """

    by_rows = True

    def __init__(self, sizes: Sizes, config: AttentionConfig) -> None:
        super().__init__(sizes, config)
        self.sink = nn.Parameter(torch.zeros(self.key_width)) if config.source_sink else None
        self.rotates = config.rotary_source

    def project_source(
        self, source: States, *, padding: Padding | None = None, rotary: Angles | None = None
    ) -> ProjectedSource:
        key, value, mask = super().project_source(source, padding=padding)
        if self.rotates:
            assert rotary is not None, "rotary keys need the positions of the source"
            key = rotate(key, rotary=rotary)
        if self.sink is not None:
            sink = split_heads(self.sink.to(value.dtype).expand(source.shape[0], 1, -1), num_heads=self.key_heads)
            key = torch.cat((key, torch.zeros_like(sink)), dim=2)
            value = torch.cat((value, sink), dim=2)
            mask = None if mask is None else pad(mask, (0, 1), value=True)
        return ProjectedSource(key, value, mask)

    def place(self, heads: Heads, encoding: PositionEncoding) -> Heads:
        if not self.rotates:
            return heads
        assert encoding.rotary is not None, "rotary queries need their positions"
        return rotate(heads, rotary=encoding.rotary)

    def shown_weights(self, weights: Weights) -> Float[Tensor, "batch heads query shown"]:
        """Those of the source, without that of the sink."""
        return weights if self.sink is None else weights[..., :-1]


class RotaryPositions(PositionEncoder):
    """Angles ``i / 10000^(2j/head)`` of the pairs of channels of each head."""

    self_attention = RotarySelfAttention

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.pairs, self.num_heads = sizes.width // sizes.num_heads // 2, sizes.num_heads

    @classmethod
    def build(cls, config: Any, *, decoder: bool) -> PositionEncoder:
        del decoder
        return cls(config.sizes)

    def angles(self, positions: Positions) -> Float[Tensor, "2 rows 1 position half"]:
        """Cosines and sines of ``positions``."""
        rank = torch.arange(self.pairs, device=positions.device, dtype=torch.float32)
        angle = positions.float().unsqueeze(-1) * torch.exp(-math.log(10_000.0) * rank / self.pairs)
        return torch.stack((angle.cos(), angle.sin())).unsqueeze(2)

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        del padding
        return PositionEncoding(positions, rotary=self.angles(positions))

    def source_angles(self, positions: Positions, *, padding: Padding | None, from_end: bool) -> Angles:
        """Those with which the keys of a source are rotated.

        With ``from_end`` the second half of the heads counts positions from the last real one (decision D12).
        """
        angles = self.angles(positions)
        if not from_end:
            return angles
        mirrored = self.angles(reverse_positions(positions, padding=padding))
        size = (-1, mirrored.shape[1], self.num_heads // 2, -1, -1)
        return torch.cat((angles.expand(size), mirrored.expand(size)), dim=2)
