"""Text to picture: a caption is read, and a square grey picture is written pixel by pixel, row by row.

Without files of your own, the captions are "a zero" to "a nine" and the pictures are handwritten digits
(`data.handwriting`). A pixel has one of `levels` intensities: the target of a picture is ``3 + intensity`` of each
pixel, without an end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from universal_transformer.data.columns import Lines
from universal_transformer.data.example import FIRST, PADDING, Example
from universal_transformer.data.handwriting import SIDE, block_means
from universal_transformer.data.text_table import TextTable
from universal_transformer.data.tokenizer import END, START
from universal_transformer.errors import UserError
from universal_transformer.files import Line
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.picture_tables import OwnPictures, changed_pictures
from universal_transformer.tasks.sides.picture import MOST_SIDE, Raster
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import Range

NAMES = ("a zero", "a one", "a two", "a three", "a four", "a five", "a six", "a seven", "an eight", "a nine")


PictureCodec = Codec[Text, Raster]


@dataclass(frozen=True, kw_only=True)
class PicturesData(OwnPictures):
    """Captions and pictures: handwritten digits, or your own."""

    sides: ClassVar[Sides] = (Text, Raster)
    side: Annotated[int, Range(2, MOST_SIDE)] = 14
    """Pixels of a side. Your own pictures are scaled; of the digits, it is 28 or a divisor of it."""
    levels: Annotated[int, Range(2, 256)] = 256
    """Intensities of a pixel."""
    tokenizer: str = "word"
    """What a token of a caption is: character, whitespace, word, bpe, or a tokenizer file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.train and SIDE % self.side:
            raise UserError(f"data.side={self.side}: the digits have {SIDE} × {SIDE} pixels; allowed: 28, 14, 7, 4, 2")

    scored_by = "intensities"

    @property
    def name(self) -> str:
        return f"pictures {self.side} × {self.side}, {self.levels} intensities"

    def codec(self, captions: Sequence[str]) -> PictureCodec:
        tokenizer = self.captions_tokenizer(captions)
        special = (tokenizer.padding_id, tokenizer.start_id, tokenizer.end_id)
        after = 0 if special == (PADDING, START, END) else FIRST
        return Codec(Text(tokenizer, self.max_length, after=after), Raster(self.side, self.levels))

    def inputs(self, lines: Lines, *, name: str, codec: Codec[Any, Any]) -> Iterator[Line]:
        """Yield captions, the only column that a model of pictures reads."""
        del name, codec
        yield from lines

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        notes += changed_pictures(table, height=self.side, width=self.side)
        turned = TextTable(table.name, tuple(row._replace(first=row.second, second=row.first) for row in table.rows))
        return super().encode(codec, turned, notes)

    def digits(self, saved: Saved | None) -> Task:
        codec: PictureCodec = saved.codec if saved else self.codec(NAMES)
        captions = codec.source.encode_many(NAMES, [])
        parts = {
            name: [
                Example(source=captions[digit], target=codec.target.ids(picture), group=NAMES[digit])
                for picture, digit in zip(block_means(part.pictures, side=self.side), part.digits.tolist(), strict=True)
            ]
            for name, part in self.handwriting().items()
        }
        return self.of_digits(codec, parts["train"], parts["validation"], {"test": parts["test"]})
