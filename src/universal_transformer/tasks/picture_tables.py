"""Captions files: lines of ``picture<TAB>caption``, or JSON lines with these keys.

A picture is a file, named from the folder of the captions file.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from universal_transformer.data.columns import Columns, Lines, TextRow
from universal_transformer.data.example import Example
from universal_transformer.data.handwriting import Handwriting, load_handwriting
from universal_transformer.data.picture_files import note_changes
from universal_transformer.data.text_table import TextTable, read_table
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import check_choice, make_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import Line, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.own_files import OwnFiles
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import AtLeastTwo, NumberOf, Share, check


def read_captions(path: str | Path, columns: Columns) -> TextTable:
    """Return the rows of a captions file with the absolute path of each picture; UserError for one that is missing."""
    table, folder = read_table(path, columns), Path(path).absolute().parent
    rows = []
    for row in table.rows:
        picture = folder / row.first.strip()
        if not picture.is_file():
            raise UserError(f"{table.name}:{row.line}: {show_path(picture)}: no such picture; this line names it")
        rows.append(row._replace(first=str(picture)))
    return replace(table, rows=tuple(rows))


@dataclass(frozen=True, kw_only=True)
class OwnPictures(OwnFiles):
    """Base of a task on a captions file: a picture and a caption a row, or handwritten digits without one."""

    ROWS: ClassVar = "pictures"
    train: str = ""
    """Your own pictures: a file of `picture<TAB>caption` lines, or JSON lines (.jsonl) with "picture" and "caption". A
    picture is a file, named from the folder of this one. Empty: handwritten digits (`ut data fetch mnist10k`)."""
    data_dir: str = ""
    """Folder with the data sets; empty: the environment variable UT_DATA, or else data."""
    tokenizer: str = "character"
    """What a token of a caption is: character, whitespace, word, bpe, or a tokenizer file."""
    vocabulary_size: int = 4000
    max_length: AtLeastTwo = 64
    """Tokens of the longest caption, <end> included; longer ones are left out and counted."""
    validation_fraction: Share = 0.1
    limit: NumberOf = 0
    """Use at most so many of the handwritten digits of each part; 0: all."""
    seed: NumberOf = 0
    """Seed of all that is drawn: what is held out, and rows of digits and their distortions."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=False)
        if not self.train and (self.validation or self.test):
            raise UserError("data.train is not set; name it too, or leave data.validation and data.test out")

    def read(self, part: str) -> TextTable:
        return read_captions(getattr(self, part), self.layout)

    def inputs(self, lines: Lines, *, name: str, codec: Codec[Any, Any]) -> Iterator[Line]:
        """Yield the picture of each row: a file in the folder of `name`, or else one in the current folder."""
        for line in super().inputs(lines, name=name, codec=codec):
            picture = Path(name).absolute().parent / line.text.strip()
            yield line._replace(text=str(picture)) if line.text.strip() and picture.is_file() else line

    @property
    def layout(self) -> Columns:
        return Columns("picture", "caption", chosen=self.columns, separator=self.separator)

    def load(self, saved: Saved | None = None) -> Task:
        """Read the pictures; of a new run, tokens of captions are learned from the training part."""
        return super().load(saved) if self.train else self.digits(saved)

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Any, Any]:
        del given
        return self.codec([row.second for row in rows])

    @abstractmethod
    def codec(self, captions: Sequence[str]) -> Codec[Any, Any]:
        """The codec whose tokens are those of the captions."""

    def captions_tokenizer(self, captions: Sequence[str]) -> Tokenizer:
        return make_tokenizer(self.tokenizer, captions, vocabulary_size=self.vocabulary_size, lower_case=False)

    @abstractmethod
    def digits(self, saved: Saved | None) -> Task:
        """The task on handwritten digits."""

    def handwriting(self) -> dict[str, Handwriting]:
        return {
            name: Handwriting(part.pictures[: self.limit or None], part.digits[: self.limit or None])
            for name, part in load_handwriting(self.data_dir).items()
        }

    def of_digits(
        self,
        codec: Codec[Any, Any],
        train: Sequence[Example],
        validation: Sequence[Example],
        test: Mapping[str, Sequence[Example]],
    ) -> Task:
        note = "digits: a sample of MNIST, not its test set; the figures compare with no published ones"
        return Task(self.name, codec, train, validation, test, self.scored_by, notes=(note,))


def changed_pictures(table: TextTable, *, height: int, width: int = 0) -> list[str]:
    """Return a note if pictures of a table are scaled or turned to grey when they are read."""
    changed: list[str] = []
    for row in table.rows:
        try:
            changed += filter(None, [note_changes(row.first, height=height, width=width)])
        except UserError as error:
            raise UserError(f"{table.name}:{row.line}: {error}; this line names it") from error
    if not changed:
        return []
    return [f"{table.name}: {len(changed):,} of {len(table.rows):,} pictures are changed; the first is {changed[0]}"]
