"""Coordinates: the position and step signals of the shared block.

``P^t[i, 2j] = sin(i / 10000^(2j/d)) + sin(t / 10000^(2j/d))`` and the same with cosines in channel ``2j + 1``
(paper, section 2.1): a position part π_i plus a step part τ_t, added to the state before every step.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from universal_transformer.axes import Float, Int, Padding, Positions, States, Tensor, Vectors
from universal_transformer.nn.attention import SelfAttention
from universal_transformer.nn.context import Number, PositionEncoding

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


class PositionEncoder(nn.Module):
    """The protocol of position encodings; this one encodes nothing. The others are in `models/positions/`."""

    reach: int | None = None
    """How many positions it can encode; None: any number."""
    self_attention: ClassVar[type[SelfAttention]] = SelfAttention
    """The attention in which these positions are seen."""

    @classmethod
    def build(cls, config: Any, *, decoder: bool) -> "PositionEncoder":
        """The encoding of one side of a model; ``config``: a ModelConfig."""
        del config, decoder
        return cls()

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        """π of ``positions`` (counted from 0; one row serves a whole batch)."""
        del padding
        return PositionEncoding(positions)


class SinusoidalPositions(PositionEncoder):
    """``π_i``, the sinusoid of the position."""

    def __init__(self, width: int, *, layout: Layout = "interleaved") -> None:
        super().__init__()
        self.width, self.layout = width, layout

    @classmethod
    def build(cls, config: Any, *, decoder: bool) -> PositionEncoder:
        del decoder
        return cls(config.sizes.width, layout=config.coordinates.layout)

    def forward(self, positions: Positions, *, padding: Padding | None = None) -> PositionEncoding:
        del padding
        return PositionEncoding(positions, sinusoid(positions, width=self.width, layout=self.layout))


class StepEncoder(nn.Module):
    """``τ_t``, the sinusoid of the step."""

    def __init__(self, width: int, *, layout: Layout = "interleaved") -> None:
        super().__init__()
        self.width, self.layout = width, layout

    def forward(self, steps: int, *, like: Tensor) -> Float[Tensor, "step channels"] | None:
        """τ of the first ``steps`` steps, in the type and on the device of ``like``; None without step signals."""
        index = torch.arange(steps, device=like.device)
        return sinusoid(index, width=self.width, layout=self.layout).to(like.dtype)


class Coordinates(nn.Module):
    """Adds ``P^t = π + τ_t`` to states at every step; with ``every_step=False`` π only once, at the input (D1, D2)."""

    by_rows = pointwise = True

    def __init__(self, position: PositionEncoder, step: StepEncoder | None, *, every_step: bool = True) -> None:
        super().__init__()
        self.position, self.step, self.every_step = position, step, every_step

    def start(self, states: States, encoding: PositionEncoding) -> States:
        """``H^0 + π`` where positions are added once, at the input; the states unchanged where they are not."""
        if self.every_step or encoding.signal is None:
            return states
        return states + encoding.signal.to(states.dtype)

    def signals(self, steps: int, *, like: Tensor) -> Float[Tensor, "step channels"] | None:
        """τ of all steps; None without step signals."""
        return None if self.step is None else self.step(steps, like=like)

    def forward(
        self,
        states: Vectors,
        encoding: PositionEncoding,
        *,
        step: Number,
        signals: Float[Tensor, "step channels"] | None,
    ) -> Vectors:
        """``X = H + P^t`` for ``step`` (from 0), or for the step of each row. ``signals``: from :meth:`signals`."""
        signal = encoding.signal if self.every_step else None
        if signals is not None:  # mostly one row of π serves the whole batch, so that this is a small sum
            moment = signals[step] if isinstance(step, int) else signals.index_select(0, step.view(-1))
            signal = moment if signal is None else signal.to(states.dtype) + moment
        return states if signal is None else states + signal.to(states.dtype)
