"""A grey picture: read by its columns, or written pixel by pixel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import FIRST, Example, Frames
from universal_transformer.data.picture_files import (
    MOST_PIXELS,
    SUFFIXES,
    Pixels,
    encode_png,
    note_changes,
    read_pixels,
)
from universal_transformer.errors import UserError
from universal_transformer.tasks.sides.side import Side
from universal_transformer.typed import Range, check

MOST_SIDE = 64


@dataclass(frozen=True)
class PixelColumns(Side):
    """The columns of pixels of a picture file, from left to right, as numbers from 0 to 1."""

    kind: ClassVar[str] = "columns"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    height: Annotated[int, Range(4, MOST_PIXELS)]
    most_columns: Annotated[int, Range(4, MOST_PIXELS)]

    def __post_init__(self) -> None:
        check(self)

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "patches", "inputs.features": self.height}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example for each line, which names a picture file; empty lines are left out."""
        for number, line in lines:
            if line.strip():
                path = line.strip()
                try:
                    source, changed = self.columns(self.pixels(path)), note_changes(path, height=self.height)
                except UserError as error:
                    raise UserError(str(error) if path == name else f"{name}:{number}: {error}") from error
                yield Example(source=source, target=(), notes=(changed,) if changed else ())

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[Frames]:
        return [self.columns(_named(self.pixels, text, place)) for text, place in zip(texts, places, strict=True)]

    def pixels(self, path: str | Path) -> NDArray[np.uint8]:
        return read_pixels(path, height=self.height, most_columns=self.most_columns)

    def picture(self, value: Frames) -> Pixels:
        return np.rint(255 * value.T).astype(np.uint8)

    def columns(self, pixels: NDArray[np.uint8]) -> Frames:
        """The columns of pixels [row, column] as numbers from 0 to 1."""
        return np.ascontiguousarray(pixels.T, dtype=np.float32) / np.float32(255)

    def names(self, positions: Frames) -> list[str]:
        return list(map(str, range(len(positions))))


@dataclass(frozen=True)
class Raster(Side):
    """The pixels of a square picture, row by row, each as the number of its intensity; an answer is a PNG file."""

    kind: ClassVar[str] = "raster"
    suffix: ClassVar[str] = ".png"
    draws: ClassVar[bool] = True
    side: Annotated[int, Range(2, MOST_SIDE)]
    levels: Annotated[int, Range(2, 256)]

    def __post_init__(self) -> None:
        check(self)

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {
            "architecture": "encoder_decoder",
            "vocabulary.target_size": FIRST + self.levels,
            "outputs.kind": "raster",
            "outputs.columns": self.side,
            "generation.max_new_tokens": self.side**2,
            "generation.fixed_length": True,
        }

    @property
    def size(self) -> str:
        return f"pictures of {self.side} × {self.side} pixels, {self.levels} intensities"

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        return [self.ids(_named(self._read, text, place)) for text, place in zip(texts, places, strict=True)]

    def _read(self, path: str) -> Pixels:
        return read_pixels(path, height=self.side, width=self.side)

    def ids(self, pixels: Pixels) -> tuple[int, ...]:
        return tuple((FIRST + pixels.astype(np.int64) * self.levels // 256).ravel().tolist())

    def picture(self, value: Sequence[int]) -> Pixels:
        """Grey pixels [side, side] of the ids of a picture: black for intensity 0, white for the last one."""
        intensities = np.array(value, dtype=np.int64) - FIRST
        return np.rint(intensities * 255 / (self.levels - 1)).astype(np.uint8).reshape(self.side, self.side)

    def content(self, target: Sequence[int]) -> bytes:
        return encode_png(self.picture(target))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [f"{index - FIRST}" for index in ids]

    def render(self, target: Sequence[int]) -> str:
        """The intensities, two hexadecimal digits each, with a blank between rows."""
        digits = [f"{max(0, index - FIRST):02x}" for index in target]
        return " ".join("".join(digits[row : row + self.side]) for row in range(0, len(digits), self.side))


def _named(read: Any, path: str, place: str) -> Any:
    """Read a picture, and add the line of the file that names it to what is said of it."""
    try:
        return read(path)
    except UserError as error:
        raise UserError(f"{place}: {error}; this line names it") from error
