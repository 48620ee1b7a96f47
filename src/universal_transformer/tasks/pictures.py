"""Text to picture: a caption is read, and a square grey picture is written pixel by pixel, row by row.

Without files of your own, the captions are "a zero" to "a nine" and the pictures are handwritten digits
(`data.handwriting`). A pixel has one of `levels` intensities: the target of a picture is ``3 + intensity`` of each
pixel, without an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from universal_transformer.data.example import FIRST, PADDING, Example
from universal_transformer.data.handwriting import SIDE, Handwriting, block_means, load_handwriting
from universal_transformer.data.picture_files import Pixels, encode_png, read_pixels
from universal_transformer.data.text_table import TextTable
from universal_transformer.data.tokenizer import END, START, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.tasks.codecs import SavedCodec, read_sources
from universal_transformer.tasks.picture_tables import captions_tables, changed_pictures, naming
from universal_transformer.tasks.tables import Encoded, OwnTables
from universal_transformer.tasks.task import Codec, Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Range, Share, check

NAMES = ("a zero", "a one", "a two", "a three", "a four", "a five", "a six", "a seven", "an eight", "a nine")
MOST_SIDE = 64


@dataclass(frozen=True)
class PictureCodec(SavedCodec):
    """A tokenizer of captions, and the side and the intensities of pictures.

    Ids of captions are those of the tokenizer where its padding, start and end are 0 to 2, as they are in pictures; the
    ids of another tokenizer come after these three.
    """

    kind: ClassVar[str] = "pictures"
    suffix: ClassVar[str] = ".png"
    tokenizer: Tokenizer
    side: Annotated[int, Range(2, MOST_SIDE)]
    levels: Annotated[int, Range(2, 256)]
    max_length: int

    def __post_init__(self) -> None:
        check(self)

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the words and the pictures."""
        return {
            "architecture": "encoder_decoder",
            "inputs.kind": "tokens",
            "vocabulary.size": self._first + len(self.tokenizer),
            "vocabulary.target_size": FIRST + self.levels,
            "outputs.kind": "raster",
            "outputs.columns": self.side,
            "generation.max_new_tokens": self.side**2,
            "generation.fixed_length": True,
        }

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without a picture for each caption."""
        for example in read_sources(lines, self.tokenizer, name=name, what="caption", limit=self.max_length):
            ids = [index for index in example.source if isinstance(index, int)]
            yield replace(example, source=self.source(ids[:-1]), padding_id=PADDING)

    def source(self, caption: Sequence[int]) -> tuple[int, ...]:
        """Return the ids of a caption, which the tokenizer gives, as the model reads them."""
        return (*(self._first + index for index in caption), END)

    @property
    def _first(self) -> int:
        tokenizer = self.tokenizer
        return 0 if (tokenizer.padding_id, tokenizer.start_id, tokenizer.end_id) == (PADDING, START, END) else FIRST

    def _token(self, index: int) -> int:
        """Return the id of the tokenizer for one that the model reads."""
        return self.tokenizer.end_id if index == END else index - self._first

    def target(self, pixels: Pixels) -> tuple[int, ...]:
        """Return the ids of a picture: its pixels row by row, each as the number of its intensity."""
        return tuple((FIRST + pixels.astype(np.int64) * self.levels // 256).ravel().tolist())

    def pixels(self, target: Sequence[int]) -> Pixels:
        """Return grey pixels [side, side] of the ids of a picture: black for intensity 0, white for the last one."""
        intensities = np.array(target, dtype=np.int64) - FIRST
        return np.rint(intensities * 255 / (self.levels - 1)).astype(np.uint8).reshape(self.side, self.side)

    def content(self, target: Sequence[int]) -> bytes:
        """Return a picture as the content of a PNG file."""
        return encode_png(self.pixels(target))

    def render(self, target: int | Sequence[int]) -> str:
        """Return the intensities, two hexadecimal digits each, with a blank between rows."""
        assert not isinstance(target, int), "a picture is a sequence of ids"
        digits = [f"{max(0, index - FIRST):02x}" for index in target]
        return " ".join("".join(digits[row : row + self.side]) for row in range(0, len(digits), self.side))

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [*self.tokenizer.spans(text), (len(text), len(text))]

    @property
    def vocabulary(self) -> str:
        return (
            f"{len(self.tokenizer):,} tokens; pictures of {self.side} × {self.side} pixels, {self.levels} intensities"
        )

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        assert isinstance(example.target, tuple)
        source = [self.tokenizer.piece(self._token(index)) for index in example.source if isinstance(index, int)]
        return source, [f"{index - FIRST}" for index in example.target]

    def words(self, example: Example) -> list[str]:
        return [self.tokenizer.label(self._token(index)) for index in example.source if isinstance(index, int)]


@dataclass(frozen=True, kw_only=True)
class PicturesData:
    """Captions and pictures: handwritten digits, or your own."""

    codec_class: ClassVar[type[Codec]] = PictureCodec
    FILES: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
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

    def load(self) -> Task:
        """Read the pictures, learn the tokens of captions from the training part."""
        if not self.train:
            codec = self._codec(NAMES)
            return self._digits(codec)
        given = self._tables.given()
        tables, notes = self._tables.split(given)
        codec = self._codec([row.second for row in tables["train"].rows])
        return self._task(codec, self._tables.encode(tables, notes, partial(self._encode, codec)))

    def reload(self, saved: Saved) -> Task:
        """Read the pictures again and encode them with the saved codec."""
        codec = saved.codec
        assert isinstance(codec, PictureCodec)
        if not self.train:
            return self._digits(codec)
        return self._task(codec, self._tables.encode_again(saved, partial(self._encode, codec)))

    def _codec(self, captions: Sequence[str]) -> PictureCodec:
        tokenizer = make_tokenizer(self.tokenizer, captions, vocabulary_size=self.vocabulary_size, lower_case=False)
        return PictureCodec(tokenizer=tokenizer, side=self.side, levels=self.levels, max_length=self.max_length)

    @property
    def _tables(self) -> OwnTables:
        paths = {"train": self.train, "validation": self.validation, "test": self.test}
        return captions_tables(paths, fraction=self.validation_fraction, seed=self.seed)

    def _encode(self, codec: PictureCodec, table: TextTable, notes: list[str]) -> list[Example]:
        notes += changed_pictures(table, height=self.side, width=self.side)
        captions = codec.tokenizer.encode_many([row.second for row in table.rows])
        examples = []
        for row, caption in zip(table.rows, captions, strict=True):
            if len(caption) < self.max_length:
                with naming(table, row):
                    pixels = read_pixels(row.first, height=self.side, width=self.side)
                examples.append(Example(source=codec.source(caption), target=codec.target(pixels)))
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what="caption")
        return examples

    def _digits(self, codec: PictureCodec) -> Task:
        captions = [codec.source(codec.tokenizer.encode(name)) for name in NAMES]

        def examples(part: Handwriting) -> list[Example]:
            count = self.limit or len(part)
            pictures = block_means(part.pictures[:count], side=self.side)
            return [
                Example(source=captions[digit], target=codec.target(picture), group=NAMES[digit])
                for picture, digit in zip(pictures, part.digits[:count].tolist(), strict=True)
            ]

        parts = {name: examples(part) for name, part in load_handwriting(self.data_dir).items()}
        note = "digits: a sample of MNIST, not its test set; the figures compare with no published ones"
        return self._task(
            codec,
            Encoded(
                train=parts["train"],
                validation=parts["validation"],
                test={"test": parts["test"]},
                notes=(note,),
            ),
        )

    def _task(self, codec: PictureCodec, found: Encoded) -> Task:
        name = f"pictures {self.side} × {self.side}, {self.levels} intensities"
        return found.task(name, codec=codec, metric="intensities", model_fields=codec.model_fields)
