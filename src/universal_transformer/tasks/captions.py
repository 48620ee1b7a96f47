"""Picture to text: a grey picture is read in patches, and its caption is written.

Without files of your own, the pictures are handwritten digits (`data.handwriting`), alone and joined to rows, and the
captions are the digits that they show. A row joins digits of one part of the data. Digits to train on are distorted at
random; those of validation and test are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import Example, Frames
from universal_transformer.data.handwriting import SIDE, Handwriting, load_handwriting
from universal_transformer.data.picture_files import MOST_PIXELS, SUFFIXES, note_changes, read_pixels
from universal_transformer.data.text_table import TextTable
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import one_line
from universal_transformer.tasks.codecs import SavedCodec, special_ids
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.picture_tables import captions_tables, changed_pictures, naming
from universal_transformer.tasks.tables import Encoded, OwnTables
from universal_transformer.tasks.task import Codec, Saved, Task
from universal_transformer.typed import AtLeastOne, AtLeastTwo, NumberOf, Range, Share, check

FORMS = 4
"""Distorted forms of each digit to train on."""
CHUNK = 256
"""Pictures that are distorted at once, in little memory."""
TURN, GROWTH, SHIFT = math.radians(10), 0.1, 2.0
"""Largest distortion of a digit to train on: radians, share of its size, pixels."""


@dataclass(frozen=True)
class CaptionCodec(SavedCodec):
    """The height of pictures, the most columns of one, and a tokenizer of captions."""

    kind: ClassVar[str] = "captions"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    tokenizer: Tokenizer
    height: Annotated[int, Range(4, MOST_PIXELS)]
    most_columns: Annotated[int, Range(4, MOST_PIXELS)]

    def __post_init__(self) -> None:
        check(self)

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the pictures and the tokens."""
        return {
            "architecture": "encoder_decoder",
            "inputs.kind": "patches",
            "inputs.features": self.height,
            "vocabulary.target_size": len(self.tokenizer),
            **special_ids(self.tokenizer),
        }

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {"target": self.tokenizer.tokens()}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without a caption for each line, which names a picture file; empty lines are left out."""
        for number, line in lines:
            if line.strip():
                path = line.strip()
                try:
                    source, changed = self.columns(self.pixels(path)), note_changes(path, height=self.height)
                except UserError as error:
                    raise UserError(str(error) if path == name else f"{name}:{number}: {error}") from error
                notes = (changed,) if changed else ()
                yield Example(source=source, target=(), notes=notes, padding_id=self.tokenizer.padding_id)

    def example(self, pixels: NDArray[np.uint8], caption: Sequence[int], *, group: str = "") -> Example:
        """Return the example of pixels [row, column] and the ids of their caption."""
        target = (*caption, self.tokenizer.end_id)
        return Example(self.columns(pixels), target, group=group, padding_id=self.tokenizer.padding_id)

    def pixels(self, path: str | Path) -> NDArray[np.uint8]:
        """Read a picture file, scaled to the height of the pictures of training."""
        return read_pixels(path, height=self.height, most_columns=self.most_columns)

    def columns(self, pixels: NDArray[np.uint8]) -> Frames:
        """Return the columns of pixels [row, column] from left to right, as numbers from 0 to 1."""
        return np.ascontiguousarray(pixels.T, dtype=np.float32) / np.float32(255)

    def render(self, target: int | Sequence[int]) -> str:
        """Return the text of a caption, on one line."""
        assert not isinstance(target, int), "a caption is a sequence of ids"
        return one_line(self.tokenizer.decode(target))

    def words(self, example: Example) -> list[str]:
        """Return the number of each column of pixels."""
        return list(map(str, range(len(example.source))))


@dataclass(frozen=True, kw_only=True)
class CaptionsData:
    """Pictures and captions: handwritten digits alone and in rows, or your own."""

    codec_class: ClassVar[type[Codec]] = CaptionCodec
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
    height: Annotated[int, Range(4, 256)] = SIDE
    """Rows of pixels, a multiple of --model.inputs.stride: your own pictures are scaled to them. Of the digits, 28."""
    most_columns: Annotated[int, Range(4, MOST_PIXELS)] = 16 * SIDE
    """Columns of pixels of the widest picture; a wider one is refused."""
    tokenizer: str = "character"
    """What a token of a caption is: character, whitespace, word, bpe, or a tokenizer file."""
    vocabulary_size: int = 4000
    """At most so many different tokens."""
    max_length: AtLeastTwo = 64
    """Tokens of the longest caption, <end> included; longer ones are left out and counted."""
    validation_fraction: Share = 0.1
    """Part of the training pictures held out if no validation file is named."""
    row: tuple[AtLeastOne, AtLeastOne] = (3, 6)
    """Fewest and most handwritten digits of a row."""
    rows: NumberOf = 1000
    """Rows in the test, and half as many in the validation; half of the training examples are rows. 0: none."""
    train_examples: AtLeastOne = 20_000
    """Handwritten examples of an epoch, drawn from the digits of the training part."""
    limit: NumberOf = 0
    """Use at most so many of the handwritten digits of each part; 0: all."""
    seed: NumberOf = 0
    """Seed of what is held out, of the rows, and of the distortions."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=False)
        if not self.train and (self.validation or self.test):
            raise UserError("data.train is not set; name it too, or leave data.validation and data.test out")
        if not self.train and self.tokenizer in ("word", "whitespace"):
            raise UserError(
                f"data.tokenizer={self.tokenizer}: the caption of a row of digits is one word; allowed for them: "
                "character, bpe, or a tokenizer file"
            )
        if not self.train and self.height != SIDE:
            raise UserError(f"data.height={self.height}: the handwritten digits have {SIDE} rows of pixels")
        if self.row[0] > self.row[1]:
            raise UserError(f"data.row={self.row[0]} {self.row[1]}: expected the fewest and the most digits of a row")

    def load(self) -> Task:
        """Read the pictures, learn the tokens of captions from the training part."""
        if not self.train:
            return self._digits(self._codec(["0123456789"]))
        given = self._tables.given()
        tables, notes = self._tables.split(given)
        codec = self._codec([row.second for row in tables["train"].rows])
        return self._task(codec, self._tables.encode(tables, notes, partial(self._encode, codec)))

    def reload(self, saved: Saved) -> Task:
        """Read the pictures again and encode them with the saved codec."""
        codec = saved.codec
        assert isinstance(codec, CaptionCodec)
        if not self.train:
            return self._digits(codec)
        return self._task(codec, self._tables.encode_again(saved, partial(self._encode, codec)))

    def _codec(self, captions: Sequence[str]) -> CaptionCodec:
        tokenizer = make_tokenizer(self.tokenizer, captions, vocabulary_size=self.vocabulary_size, lower_case=False)
        return CaptionCodec(tokenizer=tokenizer, height=self.height, most_columns=self.most_columns)

    @property
    def _tables(self) -> OwnTables:
        paths = {"train": self.train, "validation": self.validation, "test": self.test}
        return captions_tables(paths, fraction=self.validation_fraction, seed=self.seed)

    def _encode(self, codec: CaptionCodec, table: TextTable, notes: list[str]) -> list[Example]:
        notes += changed_pictures(table, height=self.height)
        captions = codec.tokenizer.encode_many([row.second for row in table.rows])
        examples = []
        for row, caption in zip(table.rows, captions, strict=True):
            if len(caption) < self.max_length:
                with naming(table, row):
                    examples.append(codec.example(codec.pixels(row.first), caption))
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what="caption")
        return examples

    def _digits(self, codec: CaptionCodec) -> Task:
        parts = {name: self._limited(part) for name, part in load_handwriting(self.data_dir).items()}
        drawn = DrawnDigits(codec, parts["train"], row=self.row, seed=self.seed, rows=self.rows > 0)
        validation, test = (
            {"digits": single(codec, parts[name]), "rows": self._rows(codec, parts[name], count=count)}
            for name, count in (("validation", self.rows // 2), ("test", self.rows))
        )
        note = "digits: a sample of MNIST, not its test set; the figures compare with no published ones"
        found = Encoded(
            train=LazyExamples(drawn.example, count=self.train_examples),
            validation=[*validation["digits"], *validation["rows"]],
            test={name: examples for name, examples in test.items() if examples},
            notes=(note,),
        )
        return self._task(codec, found)

    def _limited(self, part: Handwriting) -> Handwriting:
        count = self.limit or len(part)
        return Handwriting(part.pictures[:count], part.digits[:count])

    def _rows(self, codec: CaptionCodec, part: Handwriting, *, count: int) -> list[Example]:
        """Return rows of digits of one part, with each length in turn."""
        draw, (least, most) = np.random.default_rng(self.seed), self.row
        found = []
        for number in range(count):
            length = least + number % (most - least + 1)
            chosen = draw.integers(len(part), size=length)
            found.append(joined(codec, part.pictures[chosen], part.digits[chosen], group=f"{length} digits"))
        return found

    def _task(self, codec: CaptionCodec, found: Encoded) -> Task:
        return found.task("captions", codec=codec, metric="sequence", model_fields=codec.model_fields)


@dataclass(frozen=True)
class DrawnDigits:
    """Distorted digits and rows of them, each a function of the seed and its number."""

    codec: CaptionCodec
    part: Handwriting
    row: tuple[int, int]
    seed: int
    rows: bool

    @cached_property
    def _pictures(self) -> NDArray[np.uint8]:
        """Distorted forms [form, picture, row, column] of all pictures, made when the first example is drawn."""
        draw, pictures = np.random.default_rng(self.seed), self.part.pictures
        parts = [pictures[first : first + CHUNK] for first in range(0, len(pictures), CHUNK)]
        return np.stack([np.concatenate([distorted(part, draw) for part in parts]) for _ in range(FORMS)])

    def example(self, index: int) -> Example:
        """Return a single digit for an even number, and a row for an odd one (without `rows` always a digit)."""
        draw = np.random.default_rng((self.seed, index))
        length = int(draw.integers(self.row[0], self.row[1] + 1)) if self.rows and index % 2 else 1
        forms, chosen = draw.integers(FORMS, size=length), draw.integers(len(self.part), size=length)
        return joined(self.codec, self._pictures[forms, chosen], self.part.digits[chosen])


def single(codec: CaptionCodec, part: Handwriting) -> list[Example]:
    """Return an example of each digit."""
    return [
        joined(codec, part.pictures[place : place + 1], part.digits[place : place + 1]) for place in range(len(part))
    ]


def joined(codec: CaptionCodec, pictures: NDArray[np.uint8], digits: NDArray[np.int64], *, group: str = "") -> Example:
    """Return the example of a row of pictures [picture, row, column], from left to right."""
    caption = "".join(map(str, digits.tolist()))
    return codec.example(np.concatenate(list(pictures), axis=1), codec.tokenizer.encode(caption), group=group)


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
