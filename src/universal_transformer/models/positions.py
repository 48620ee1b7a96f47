"""Where tokens stand, and where there are none."""

import torch

from universal_transformer.axes import Padding, Positions
from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.coordinates import count_positions, draw_positions


def without_padding(padding: Padding) -> Padding | None:
    """``None`` when nothing is padding, which lets attention take its fastest path."""
    return padding if bool(padding.any()) else None


def default_positions(length: int, *, padding: Padding | None, device: torch.device) -> Positions:
    """0, 1, 2 … over the real tokens; one row for all when no sequence starts with padding."""
    if padding is not None and bool(padding[:, 0].any()):
        return count_positions(padding)
    return torch.arange(length, device=device).unsqueeze(0)


def training_positions(config: ModelConfig, batch: int, length: int, *, device: torch.device) -> Positions:
    """Positions to train on, drawn as ``position_offsets`` says (decision D3)."""
    return draw_positions(
        batch, length, offsets=config.position_offsets, max_positions=config.max_positions, device=device
    )
