"""Which position each token has: counted, drawn for training, and restarted after separators."""

import torch
from torch.nn.functional import pad

from universal_transformer.axes import Bool, Int, Padding, Positions, Tensor
from universal_transformer.errors import UserError
from universal_transformer.models.components import CoordinatesConfig


def without_padding(padding: Padding) -> Padding | None:
    """``None`` when nothing is padding, so that attention can use its fastest kernel. An export serves both cases."""
    return padding if torch.compiler.is_exporting() or bool(padding.any()) else None


def count_positions(padding: Padding) -> Positions:
    """Positions of the real tokens, counted from 0, wherever the padding stands."""
    return ((~padding).long().cumsum(dim=1) - 1).clamp(min=0)


def default_positions(length: int, *, padding: Padding | None, device: torch.device) -> Positions:
    """0, 1, 2 … over the real tokens; one row for all when no sequence starts with padding."""
    in_order = torch.arange(length, device=device).unsqueeze(0)
    if padding is not None and torch.compiler.is_exporting():
        return torch.where(padding[:, 0].any(), count_positions(padding), in_order)
    if padding is not None and bool(padding[:, 0].any()):
        return count_positions(padding)
    return in_order


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
    """Positions that begin again after every separator.

    The i-th token of every part gets the i-th of ``positions``, so that tokens of equal rank have equal positions
    (position coupling; Cho et al. 2024). The position of padding has no meaning.
    """
    rank = count_positions(padding)
    next_part = torch.where(separators, rank + 1, 0).cummax(dim=1).values
    begin = pad(next_part, (1, -1))
    first = padding.long().argmin(dim=1, keepdim=True)
    return positions.expand_as(rank).gather(1, (first + rank - begin).clamp(min=0))


def draw_positions(
    config: CoordinatesConfig, batch: int, length: int, *, device: torch.device | None = None
) -> Int[Tensor, "rows length"]:
    """Positions to train on (decision D3), so that those of longer test sequences occur in training too.

    ``random``: one offset per sequence, uniform over
    ``[0, max_positions - length]``. ``scattered``: a sorted random subset of ``max_positions`` positions per
    sequence (randomised positions; Ruoss et al. 2023). ``spread``: such a subset of a random window, whose length
    is log-uniform between ``length`` and ``max_positions``, so that short distances stay frequent.

    Raises UserError when ``length`` exceeds ``max_positions``.
    """
    offsets, max_positions = config.offsets, config.max_positions
    if length > max_positions:
        raise UserError(
            f"a sequence of {length} positions cannot be given an offset within coordinates.max_positions="
            f"{max_positions}: raise it or shorten the sequence"
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
