"""Picture to text: a grey picture is read in patches, and its caption is written.

Without files of your own, the pictures are handwritten digits (`data.handwriting`), alone and joined to rows, and the
captions are the digits that they show. A row joins digits of one part of the data. Digits to train on are distorted at
random; those of validation and test are not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import Example
from universal_transformer.data.handwriting import SIDE, Handwriting
from universal_transformer.data.picture_files import MOST_PIXELS
from universal_transformer.data.text_table import TextTable
from universal_transformer.errors import UserError
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.picture_tables import OwnPictures, changed_pictures
from universal_transformer.tasks.sides.picture import PixelColumns
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import Length, NumberOf, Positive, Range

FORMS = 4
"""Distorted forms of each digit to train on."""
CHUNK = 256
"""Pictures that are distorted at once, in little memory."""
TURN, GROWTH, SHIFT = math.radians(10), 0.1, 2.0
"""Largest distortion of a digit to train on: radians, share of its size, pixels."""


CaptionCodec = Codec[PixelColumns, Text]


@dataclass(frozen=True, kw_only=True)
class CaptionsData(OwnPictures):
    """Pictures and captions: handwritten digits alone and in rows, or your own."""

    sides: ClassVar[Sides] = (PixelColumns, Text)
    height: Annotated[int, Range(4, 256)] = SIDE
    """Rows of pixels, a multiple of --model.inputs.stride: your own pictures are scaled to them. Of the digits, 28."""
    most_columns: Annotated[int, Range(4, MOST_PIXELS)] = 16 * SIDE
    """Columns of pixels of the widest picture; a wider one is refused."""
    row: tuple[Length, Length] = (3, 6)
    """Fewest and most handwritten digits of a row."""
    rows: NumberOf = 1000
    """Rows in the test, and half as many in the validation; half of the training examples are rows. 0: none."""
    train_examples: Positive = 20_000
    """Handwritten examples of an epoch, drawn from the digits of the training part."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.train and self.tokenizer in ("word", "whitespace"):
            raise UserError(
                f"data.tokenizer={self.tokenizer}: the caption of a row of digits is one word; allowed for them: "
                "character, bpe, or a tokenizer file"
            )
        if not self.train and self.height != SIDE:
            raise UserError(f"data.height={self.height}: the handwritten digits have {SIDE} rows of pixels")
        if self.row[0] > self.row[1]:
            raise UserError(f"data.row={self.row[0]} {self.row[1]}: expected the fewest and the most digits of a row")

    name = "captions"
    scored_by = "sequence"

    def codec(self, captions: Sequence[str]) -> CaptionCodec:
        columns = PixelColumns(self.height, self.most_columns)
        return Codec(columns, Text(self.captions_tokenizer(captions), self.max_length))

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        notes += changed_pictures(table, height=self.height)
        return super().encode(codec, table, notes)

    def digits(self, saved: Saved | None) -> Task:
        codec: CaptionCodec = saved.codec if saved else self.codec(["0123456789"])
        parts = self.handwriting()
        validation, test = (
            {"digits": _single(codec, parts[name]), "rows": self._rows(codec, parts[name], count=count)}
            for name, count in (("validation", self.rows // 2), ("test", self.rows))
        )
        train = LazyExamples(partial(self._drawn, codec, parts["train"].digits), count=self.train_examples)
        tests = {name: examples for name, examples in test.items() if examples}
        return self.of_digits(codec, train, [*validation["digits"], *validation["rows"]], tests)

    def _rows(self, codec: CaptionCodec, part: Handwriting, *, count: int) -> list[Example]:
        draw, (least, most) = np.random.default_rng(self.seed), self.row
        found = []
        for number in range(count):
            length = least + number % (most - least + 1)
            chosen = draw.integers(len(part), size=length)
            found.append(joined(codec, part.pictures[chosen], part.digits[chosen], group=f"{length} digits"))
        return found

    @cached_property
    def _forms(self) -> NDArray[np.uint8]:
        """Distorted forms [form, picture, row, column] of the digits to train on, made when an example is drawn."""
        draw, pictures = np.random.default_rng(self.seed), self.handwriting()["train"].pictures
        parts = [pictures[first : first + CHUNK] for first in range(0, len(pictures), CHUNK)]
        return np.stack([np.concatenate([distorted(part, draw) for part in parts]) for _ in range(FORMS)])

    def _drawn(self, codec: CaptionCodec, digits: NDArray[np.int64], index: int) -> Example:
        """Return a distorted digit for an even number, and a row for an odd one (without `rows` always a digit)."""
        draw = np.random.default_rng((self.seed, index))
        length = int(draw.integers(self.row[0], self.row[1] + 1)) if self.rows and index % 2 else 1
        forms, chosen = draw.integers(FORMS, size=length), draw.integers(len(digits), size=length)
        return joined(codec, self._forms[forms, chosen], digits[chosen])


def _single(codec: CaptionCodec, part: Handwriting) -> list[Example]:
    return [joined(codec, part.pictures[[place]], part.digits[[place]]) for place in range(len(part))]


def joined(codec: CaptionCodec, pictures: NDArray[np.uint8], digits: NDArray[np.int64], *, group: str = "") -> Example:
    caption = "".join(map(str, digits.tolist()))
    source = codec.source.columns(np.concatenate(list(pictures), axis=1))
    (target,) = codec.target.encode_many([caption], [])
    return Example(source, target, group=group, padding_id=codec.padding_id)


def distorted(pictures: NDArray[np.uint8], draw: np.random.Generator) -> NDArray[np.uint8]:
    """Return pictures [picture, row, column], each turned, scaled and shifted at random around its centre.

    Each new pixel is interpolated between the four pixels around its place in the old picture; black comes in from
    outside.
    """
    count, side = pictures.shape[:2]
    centre = (side - 1) / 2
    turn = draw.uniform(-TURN, TURN, size=count)
    growth = 1 + np.asarray(draw.uniform(-GROWTH, GROWTH, size=count), dtype=np.float32)
    shift = draw.uniform(-SHIFT, SHIFT, size=(2, count))
    wave = np.stack((np.cos(turn), np.sin(turn)))[..., None, None].astype(np.float32)
    cosine, sine = wave / growth[:, None, None]
    moved = centre + shift[..., None, None].astype(np.float32)
    rows, columns = np.mgrid[:side, :side].astype(np.float32)[:, None] - moved
    row, column = cosine * rows - sine * columns + centre, sine * rows + cosine * columns + centre
    top, left = np.floor(row), np.floor(column)
    down, right = row - top, column - left
    framed = np.pad(pictures, ((0, 0), (1, 1), (1, 1))).astype(np.float32)
    lines = [np.clip(top + offset, 0, side + 1).astype(np.int32) for offset in (1, 2)]
    places = [np.clip(left + offset, 0, side + 1).astype(np.int32) for offset in (1, 2)]
    which = np.arange(count, dtype=np.int32)[:, None, None]
    upper, lower = (
        framed[which, line, places[0]] * (1 - right) + framed[which, line, places[1]] * right for line in lines
    )
    return np.rint(upper * (1 - down) + lower * down).astype(np.uint8)
