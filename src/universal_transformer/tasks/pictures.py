"""Text to picture: a caption is read, and a square grey picture is written pixel by pixel, row by row.

Without files of your own, the captions are "a zero" to "a nine" and the pictures are handwritten digits
(`data.handwriting`). A pixel has one of `levels` intensities: the target of a picture is ``3 + intensity`` of each
pixel, without an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from universal_transformer.data.example import FIRST, PADDING, Example
from universal_transformer.data.handwriting import SIDE, Handwriting, block_means, load_handwriting
from universal_transformer.data.text_table import TextRow, TextTable
from universal_transformer.data.tokenizer import END, START
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.picture_tables import OwnPictures, changed_pictures
from universal_transformer.tasks.sides.picture import MOST_SIDE, Raster
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Text
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Range, Share, check

NAMES = ("a zero", "a one", "a two", "a three", "a four", "a five", "a six", "a seven", "an eight", "a nine")


PictureCodec = Codec[Text, Raster]


@dataclass(frozen=True, kw_only=True)
class PicturesData(OwnPictures):
    """Captions and pictures: handwritten digits, or your own."""

    sides: ClassVar[Sides] = (Text, Raster)
    train: str = ""
    """Your own pictures: a file of `picture<TAB>caption` lines, or JSON lines (.jsonl) with "picture" and "caption". A
    picture is a file, named from the folder of this one. Empty: handwritten digits (`ut data fetch mnist10k`)."""
    validation: str = ""
    """Validation captions, like `train`; without it a part of the training pictures is held out."""
    test: str = ""
    """Test captions, like `train`; without it the validation pictures are scored."""
    data_dir: str = ""
    """Folder with the data sets; empty: the environment variable UT_DATA, or else data."""
    side: Annotated[int, Range(2, MOST_SIDE)] = 14
    """Pixels of a side. Your own pictures are scaled; of the digits, it is 28 or a divisor of it."""
    levels: Annotated[int, Range(2, 256)] = 256
    """Intensities of a pixel."""
    tokenizer: str = "word"
    """What a token of a caption is: character, whitespace, word, bpe, or a tokenizer file."""
    vocabulary_size: int = 4000
    """At most so many different tokens."""
    max_length: AtLeastTwo = 64
    """Tokens of the longest caption, <end> included; longer ones are left out and counted."""
    validation_fraction: Share = 0.1
    """Part of the training pictures held out if no validation file is named."""
    seed: NumberOf = 0
    """Seed of what is held out."""
    limit: NumberOf = 0
    """Use at most so many of the handwritten digits of each part; 0: all."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=False)
        if not self.train and (self.validation or self.test):
            raise UserError("data.train is not set; name it too, or leave data.validation and data.test out")
        if not self.train and SIDE % self.side:
            raise UserError(f"data.side={self.side}: the digits have {SIDE} × {SIDE} pixels; allowed: 28, 14, 7, 4, 2")

    scored_by = "intensities"

    @property
    def name(self) -> str:
        return f"pictures {self.side} × {self.side}, {self.levels} intensities"

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> PictureCodec:
        del given
        return self._codec([row.second for row in rows])

    def _codec(self, captions: Sequence[str]) -> PictureCodec:
        tokenizer = make_tokenizer(self.tokenizer, captions, vocabulary_size=self.vocabulary_size, lower_case=False)
        special = (tokenizer.padding_id, tokenizer.start_id, tokenizer.end_id)
        after = 0 if special == (PADDING, START, END) else FIRST
        return Codec(Text(tokenizer, self.max_length, after=after), Raster(self.side, self.levels))

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        notes += changed_pictures(table, height=self.side, width=self.side)
        turned = TextTable(table.name, tuple(row._replace(first=row.second, second=row.first) for row in table.rows))
        return super().encode(codec, turned, notes)

    def digits(self, saved: Saved | None) -> Task:
        codec: PictureCodec = saved.codec if saved else self._codec(NAMES)
        captions = codec.source.encode_many(NAMES, [])

        def examples(part: Handwriting) -> list[Example]:
            count = self.limit or len(part)
            pictures = block_means(part.pictures[:count], side=self.side)
            return [
                Example(source=captions[digit], target=codec.target.ids(picture), group=NAMES[digit])
                for picture, digit in zip(pictures, part.digits[:count].tolist(), strict=True)
            ]

        parts = {name: examples(part) for name, part in load_handwriting(self.data_dir).items()}
        note = "digits: a sample of MNIST, not its test set; the figures compare with no published ones"
        return Task(
            name=self.name,
            codec=codec,
            train=parts["train"],
            validation=parts["validation"],
            test={"test": parts["test"]},
            metric=self.scored_by,
            notes=(note,),
        )
