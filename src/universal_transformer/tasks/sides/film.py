"""The last pictures of an episode."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from universal_transformer.data.example import Example, Frames
from universal_transformer.data.picture_files import SUFFIXES, note_changes, read_pixels
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.tasks.sides.observations import OfEpisode
from universal_transformer.typed import Range

MOST_PICTURES = 64


@dataclass(frozen=True, kw_only=True)
class Film(OfEpisode):
    """The last grey pictures of an episode. A frame has the pixels of one, row by row, as numbers from 0 to 1."""

    kind: ClassVar[str] = "film"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    history: Annotated[int, Range(1, MOST_PICTURES)]
    """Most pictures of a source."""
    side: Annotated[int, Range(8, 64)]
    """Pixels of a side of a picture."""

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "frames", "inputs.features": self.side**2}

    def observed(self, observations: Frames) -> Example:
        return Example(source=self.drawn(observations[-self.history :]), target=())

    def drawn(self, observations: Frames) -> Frames:
        """The pictures [time, pixel] of observations [time, feature], with the 256 intensities of a picture file.

        Lines are one to two pixels wide. A pixel at an edge has an intensity in between, so that the place of a line is
        seen to a fraction of a pixel.
        """
        lines = self.world.lines(observations)[:, :, None]
        row, column = np.mgrid[: self.side, : self.side].reshape(2, -1)
        begin, along = lines[..., :2], lines[..., 2:] - lines[..., :2]
        place = np.stack(((column + 0.5) / self.side, 1 - (row + 0.5) / self.side), axis=-1) - begin
        nearest = ((place * along).sum(-1) / (along**2).sum(-1)).clip(0, 1)[..., None]
        distance = self.side * np.linalg.norm(place - nearest * along, axis=-1)
        intensity = (1.5 - distance).clip(0, 1).max(axis=1)
        return (np.rint(255 * intensity) / 255).astype(np.float32)

    def read_line(self, line: str, *, where: str) -> Example:
        """A line is the path of a picture file: the pictures side by side, the present one at the right."""
        del where  # messages name the picture
        path = line.strip()
        pixels = read_pixels(path, height=self.side, most_columns=self.history * self.side)
        count, rest = divmod(pixels.shape[1], self.side)
        if rest:
            size = f"{pixels.shape[1]} × {self.side} pixels"
            raise UserError(f"{show_path(path)}: {size}; expected square pictures side by side, at most {self.history}")
        frames = pixels.reshape(self.side, count, self.side).swapaxes(0, 1).reshape(count, -1)
        changed = note_changes(path, height=self.side)
        return Example(
            source=frames.astype(np.float32) / np.float32(255), target=(), notes=(changed,) if changed else ()
        )
