"""Sound as frames of log energies in mel bands, read from files or written to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from universal_transformer.data.example import Example, Frames
from universal_transformer.data.griffin_lim import waveform
from universal_transformer.data.sound import HEARD, SPOKEN, encode_wav, log_mel, read_sound
from universal_transformer.tasks.sides.side import Side

MIDDLE, SPREAD = -2.0, 3.0
"""Log energies are ``(F - MIDDLE) / SPREAD`` in a model, so that their mean is near 0 and their spread near 1."""


def scaled(frames: Frames) -> Frames:
    """Log energies as a model reads or writes them."""
    return ((frames - MIDDLE) / SPREAD).astype(np.float32)


@dataclass(frozen=True)
class Heard(Side):
    """Sound files as a source."""

    kind: ClassVar[str] = "heard"
    suffixes: ClassVar[tuple[str, ...]] = (".wav", ".flac")
    bands: int = HEARD.bands

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "frames", "inputs.features": self.bands}

    def read_line(self, line: str, *, where: str) -> Example:
        """A line is the path of a WAV or FLAC file."""
        del where  # messages name the sound
        sound = read_sound(line.strip())
        return Example(source=scaled(log_mel(sound.samples)), target=(), notes=sound.notes)

    def names(self, positions: Frames) -> list[str]:
        return [f"{10 * frame} ms" for frame in range(len(positions))]


@dataclass(frozen=True)
class Spoken(Side):
    """Sound as a target; an answer is a WAV file."""

    kind: ClassVar[str] = "spoken"
    suffix: ClassVar[str] = ".wav"
    bands: int = SPOKEN.bands

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "encoder_decoder", "outputs.kind": "frames", "outputs.features": self.bands}

    def content(self, target: Frames) -> bytes:
        return encode_wav(waveform(target * np.float32(SPREAD) + np.float32(MIDDLE), bands=SPOKEN))

    def render(self, target: Any) -> str:
        del target
        return ""
