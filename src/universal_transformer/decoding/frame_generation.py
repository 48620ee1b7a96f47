"""Frames, such as those of a sound, written from left to right until the model stops."""

from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import torch

from universal_transformer.axes import Tensor
from universal_transformer.data.example import Frames
from universal_transformer.decoding.generation import evaluating, start_sources
from universal_transformer.decoding.ids import Source
from universal_transformer.decoding.options import DEFAULTS, DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.models.model import Model

STOPS = 0.5
"""A row ends with the first position whose probability of being the last one is larger."""


@dataclass(kw_only=True)
class GeneratedFrames:
    """The frames written for one row."""

    source_steps: list[float]
    """Depth steps of the encoder for each source position; empty without depth."""
    finished: bool = False
    """Whether the model stopped; False for frames that were cut at their limit."""
    steps: list[float] = field(default_factory=list)
    """Depth steps of the decoder for each position; empty without depth."""
    parts: list[Frames] = field(default_factory=list)
    """The frames of each position."""

    @property
    def frames(self) -> Frames:
        """All frames [frame, feature]."""
        return np.concatenate(self.parts)


def generate_frames(model: Model, source: Source, options: DecodingOptions = DEFAULTS) -> list[GeneratedFrames]:
    """The frames that the model writes for each row of ``source``, those of whole positions.

    A row ends with the position that the model says is its last one (`STOPS`), or at the limit of its target. Dropout
    of the prenet is drawn from the source of a row alone, so that the same source has the same frames in every batch.
    ``source`` (no text), depth: as of `generate`. UserError for what it refuses, and for frames that are not finite.
    """
    with evaluating(model):
        given, state, limits, source_steps = start_sources(model, source, options)
        rows = [GeneratedFrames(source_steps=steps) for steps in source_steps]
        generators = [_generator(row, padding_id=model.config.vocabulary.padding_id) for row in given]
        running, before = list(range(len(rows))), model.target.first(len(rows))
        while running:
            masks = model.target.masks([generators[number] for number in running])
            written, stop = model.target.advance(before, state, masks=masks)
            if not bool(torch.isfinite(written).all()):
                raise UserError("the model's frames are not finite: its weights or its training went wrong")
            ends = (stop[:, -1].sigmoid() > STOPS).tolist()
            steps = [[]] * len(running) if state.trace is None else state.trace.steps[:, -1:].tolist()
            kept = []
            for place, (number, part) in enumerate(zip(running, written.float().cpu().numpy(), strict=True)):
                row = rows[number]
                row.parts.append(part)
                row.steps += steps[place]
                row.finished = ends[place]
                if not row.finished and len(row.parts) < limits[number]:
                    kept.append(place)
            running, before = [running[place] for place in kept], written[kept, -1:]
            if running and len(kept) < len(written):
                state.reorder(torch.tensor(kept, device=before.device))
    return rows


def _generator(source: Tensor, *, padding_id: int) -> torch.Generator:
    """A generator whose seed is a function of what one row of sources holds, without its padding."""
    real = ~source.isnan().all(dim=-1) if source.is_floating_point() else source != padding_id
    return torch.Generator().manual_seed(crc32(source[real].cpu().numpy().tobytes()))
