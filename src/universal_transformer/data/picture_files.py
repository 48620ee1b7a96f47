"""Picture files: PNG and others to grey pixels, and grey pixels to PNG. The one module that imports Pillow.

Sizes are read from the head of a file and refused before anything is decoded, so that a small file cannot take much
memory.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from universal_transformer.errors import UserError, optional, refuse
from universal_transformer.files import refuse_special, show, show_path

Pixels = NDArray[np.uint8]
"""Grey intensities [row, column], 0 is black."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp")
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
TURNED_FORMATS = ("JPEG", "WEBP")
"""Formats of photographs, whose head says how they are turned; to look for this in a PNG would decode it."""
MOST_PIXELS = 4096
"""Rows, and columns, of a picture file."""


def read_pixels(path: str | Path, *, height: int, width: int = 0, most_columns: int = MOST_PIXELS) -> Pixels:
    """Return a picture as grey pixels of `height` rows.

    It is scaled to `width` columns; 0 keeps its proportions, up to `most_columns`. Each new pixel is the mean of those
    that it covers. Colours become grey (0.299 R + 0.587 G + 0.114 B), what is transparent is black, and a photograph is
    turned as its EXIF orientation says. Of 16 bits a pixel the upper 8 are read. UserError for a file that is missing,
    damaged, animated, or larger than `MOST_PIXELS`, before its pixels are decoded.
    """
    name = show_path(path)
    with _opened(path) as picture:
        columns = width or max(1, round(picture.width * height / picture.height))
        if columns > most_columns:
            raise UserError(
                f"{name}: a picture of {picture.width:,} × {picture.height:,} pixels, which is {columns:,} × {height} "
                f"here; at most {most_columns:,} × {height} are read"
            )
        grey = picture
        if picture.mode.startswith("I"):
            grey = _pillow().fromarray(_upper_bits(picture))
        elif not _is_grey(picture):
            colours = picture.convert("RGBA")
            black = _pillow().new("RGBA", picture.size, (0, 0, 0, 255))
            grey = _pillow().alpha_composite(black, colours).convert("L")
        if grey.size != (columns, height):
            grey = grey.resize((columns, height), resample=_pillow().Resampling.BOX)
        return np.array(grey, dtype=np.uint8)


def note_changes(path: str | Path, *, height: int, width: int = 0) -> str:
    """Say how a picture is changed when it is read; "" for one that is read as it is."""
    with _opened(path) as picture:
        columns = width or max(1, round(picture.width * height / picture.height))
        if _is_grey(picture) and picture.size == (columns, height):
            return ""
        transparent = " with transparency" * ("transparency" in picture.info)
        grey = "" if _is_grey(picture) else f" of mode {picture.mode}{transparent}"
        return (
            f"{show_path(path)}: {picture.width:,} × {picture.height:,} pixels{grey}, read as {columns:,} × {height:,} "
            "grey pixels"
        )


def _is_grey(picture: Any) -> bool:
    """Return whether a picture has one opaque level of grey, of 8 bits, for each pixel."""
    return picture.mode == "L" and "transparency" not in picture.info


def _upper_bits(picture: Any) -> Pixels:
    """Return the upper 8 of the 16 bits of each pixel; the transparent level is black."""
    levels = np.asarray(picture).astype(np.int64)
    black = levels == picture.info.get("transparency", -1)
    return np.where(black, 0, np.clip(levels >> 8, 0, 255)).astype(np.uint8)


def encode_png(pixels: Pixels) -> bytes:
    content = io.BytesIO()
    _pillow().fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """Open a picture, whose head alone is read; a fault in the file is a UserError, also while it is decoded."""
    name, pillow = show_path(path), _pillow()
    try:
        refuse_special(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes, which are refused here, and of damaged metadata
            with pillow.open(path, formats=FORMATS) as picture:
                _check(picture, name=name)
                if picture.format in TURNED_FORMATS:
                    from PIL import ImageOps

                    ImageOps.exif_transpose(picture, in_place=True)
                yield picture
    except FileNotFoundError:
        raise UserError(f"{name}: no such picture") from None
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise UserError(
            f"{name}: not a whole picture ({show(str(error), limit=80)}); expected {', '.join(FORMATS)}"
        ) from error


def _check(picture: Any, *, name: str) -> None:
    refuse(
        (
            max(picture.size) > MOST_PIXELS,
            f"a picture of {picture.width:,} × {picture.height:,} pixels; expected at most {MOST_PIXELS:,} × "
            f"{MOST_PIXELS:,}",
        ),
        (getattr(picture, "is_animated", False), "an animated picture; expected a single one"),
        at=name,
    )


def _pillow() -> Any:
    return optional("PIL.Image", needed="pictures need Pillow", extra="pictures")
