"""Your own tagged sentences in CoNLL columns: one class, its tag, for each token.

A file has one token a line, with its tag in another column and a blank line between sentences. Columns are separated by
tabs, or by blanks in a line without a tab. Lines of comments (``# text = …`` of CoNLL-U) and ``-DOCSTART-`` lines are
left out. Words that occur once in training are unknown, so that the model learns what to do with unknown words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from universal_transformer.data.example import PADDING, Example
from universal_transformer.data.text_table import Columns, TextRow, TextTable, check_file
from universal_transformer.data.tokenizer import BLANK, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines, show, show_path
from universal_transformer.tasks.codecs import SavedCodec, answer_notes, token_fields, too_long
from universal_transformer.tasks.tables import Encoded, OwnTables
from universal_transformer.tasks.task import Codec, Saved, Task
from universal_transformer.typed import AtLeastOne, NumberOf, Share, check

WORDS: Literal["whitespace"] = "whitespace"
"""The kind of tokenizer that takes each token of a line as it is."""
MOST_TAGS = 10_000
COLUMNS_OF_CONLL_U = 10
NO_TAG = "_"
"""Written for a position without a tag; only an untrained model gives it."""


@dataclass(frozen=True)
class TaggedCodec(SavedCodec):
    """A tokenizer of words, the tags in the order of their classes (from 1 on), and the limit of a sentence."""

    kind: ClassVar[str] = "tagged"
    tokenizer: Tokenizer
    tags: tuple[str, ...]
    max_length: int

    def __post_init__(self) -> None:
        if list(self.tags) != sorted(set(self.tags)):
            raise UserError(f"tags: found {show(self.tags)}; expected different strings, sorted")

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the words and the tags."""
        return token_fields("tagger", size=len(self.tokenizer), num_classes=1 + len(self.tags))

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {"source": self.tokenizer.tokens(), "classes": [NO_TAG, *self.tags]}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without tags for each line of tokens with blanks between them; empty lines are left out."""
        for number, line in lines:
            if line.strip():
                ids = tuple(self.tokenizer.encode(BLANK.join(line.split())))
                if len(ids) > self.max_length:
                    raise UserError(too_long(f"{name}:{number}", len(ids), what="sentence", limit=self.max_length))
                notes = answer_notes(line, f"{name}:{number}")
                yield Example(source=ids, target=(), unknown=self.tokenizer.unknown(line), notes=notes)

    def render(self, target: int | Sequence[int]) -> str:
        """Return the name of a tag, or the tags of a sentence with blanks between them."""
        return BLANK.join(
            NO_TAG if index == PADDING else self.tags[index - 1]
            for index in ((target,) if isinstance(target, int) else target)
        )

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self.tokenizer.spans(text)

    @property
    def vocabulary(self) -> str:
        return f"{len(self.tokenizer):,} words, {len(self.tags):,} tags"

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        assert isinstance(example.target, tuple)
        return self.words(example), [self.render(index) for index in example.target]

    def words(self, example: Example) -> list[str]:
        return [self.tokenizer.label(index) for index in example.source if isinstance(index, int)]


@dataclass(frozen=True, kw_only=True)
class TaggedData:
    """Sentences from your own files, with a tag for each token."""

    codec_class: ClassVar[type[Codec]] = TaggedCodec
    FILES: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    train: str = ""
    """Training sentences in CoNLL columns: one token a line with its tag, a blank line between sentences. Any file may
    end in .gz."""
    validation: str = ""
    """Validation sentences, like `train`; without it a part of the training sentences is held out."""
    test: str = ""
    """Test sentences, like `train`; without it the validation sentences are scored."""
    token_column: AtLeastOne = 1
    """Column of the tokens, from 1 on (CoNLL-U: 2)."""
    tag_column: NumberOf = 0
    """Column of the tags, from 1 on (CoNLL-U: 4 or 5). 0: the last."""
    vocabulary_size: int = 20000
    """At most so many different words."""
    lower_case: bool = False
    """Turn all tokens into lower case."""
    max_length: AtLeastOne = 256
    """Tokens of the longest sentence; longer ones are left out and counted."""
    validation_fraction: Share = 0.1
    """Part of the training sentences held out if no validation file is named."""
    seed: NumberOf = 0
    """Seed of what is held out."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(WORDS, self.vocabulary_size, lower_case=self.lower_case)
        if self.token_column == self.tag_column:
            raise UserError(f"data.tag_column={self.tag_column}: the tokens are in this column; choose another one")

    def load(self) -> Task:
        """Read the files, learn words and tags from the training sentences, encode all sentences."""
        check_file("train", self.train, needs=("one token a line with its tag, a blank line between sentences",))
        given = self._tables.given()
        tags = _tags(given["train"])
        tables, notes = self._tables.split(given)
        words = (row.first for row in tables["train"].rows)
        tokenizer = Tokenizer.train(
            words, kind=WORDS, vocabulary_size=self.vocabulary_size, lower_case=self.lower_case, least_count=2
        )
        codec = TaggedCodec(tokenizer=tokenizer, tags=tags, max_length=self.max_length)
        return self._task(codec, self._tables.encode(tables, notes, partial(self._encode, codec)))

    def reload(self, saved: Saved) -> Task:
        """Read the test sentences and encode them with the saved codec."""
        codec = saved.codec
        assert isinstance(codec, TaggedCodec)
        return self._task(codec, self._tables.encode_again(saved, partial(self._encode, codec)))

    @property
    def _tables(self) -> OwnTables:
        paths = {"train": self.train, "validation": self.validation, "test": self.test}
        return OwnTables(
            columns=Columns("tokens", "tags"),
            read=lambda part: read_conll(paths[part], token_column=self.token_column, tag_column=self.tag_column),
            named=[part for part, path in paths.items() if path],
            fraction=self.validation_fraction,
            seed=self.seed,
            what="sentences",
        )

    def _task(self, codec: TaggedCodec, found: Encoded) -> Task:
        return found.task("tagged", codec=codec, metric="tags", model_fields=codec.model_fields)

    def _encode(self, codec: TaggedCodec, table: TextTable, notes: list[str]) -> list[Example]:
        """Encode a table; how many of its sentences are too long is added to `notes`."""
        classes = {tag: index for index, tag in enumerate(codec.tags, start=1)}
        examples = []
        for row, ids in zip(table.rows, codec.tokenizer.encode_many([row.first for row in table.rows]), strict=True):
            tags = row.second.split(BLANK)
            if unknown := [tag for tag in tags if tag not in classes]:
                raise UserError(
                    f"{table.name}:{row.line}: unknown tag {show(unknown[0])} in the sentence from this line on; those "
                    f"of the training file are {', '.join(map(show, codec.tags[:20]))}{', …' * (len(codec.tags) > 20)}"
                )
            if len(ids) <= self.max_length:
                examples.append(Example(source=tuple(ids), target=tuple(classes[tag] for tag in tags)))
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what="sentence")
        return examples


def read_conll(path: str | Path, *, token_column: int = 1, tag_column: int = 0) -> TextTable:
    """Read the sentences of a file: the tokens, and the tags, of each with blanks between them.

    Blanks inside of a token become underscores. UserError for a line without a token or without a tag, and for a file
    without sentences.
    """
    name, rows, lines = show_path(path), [], list(read_lines(path))
    with_tabs = [line for _, line in lines if "\t" in line]
    if token_column == 1 and with_tabs and all(map(_begins_with_id, with_tabs)):
        raise UserError(
            f"{name}: the first of ten columns has the number of each token, as in CoNLL-U, and no tokens; its words "
            "and their parts of speech: --data.token-column 2 --data.tag-column 4"
        )
    sentence: list[tuple[str, str]] = []
    first = number = 0
    for number, line in lines:
        if sentence and not line.strip():
            rows.append(_row(first, sentence))
            sentence = []
        if not line.strip() or _is_left_out(line, token_column=token_column):
            continue
        first = first if sentence else number
        sentence.append(_token_and_tag(line, f"{name}:{number}", token_column=token_column, tag_column=tag_column))
    if sentence:
        rows.append(_row(first, sentence))
    if not rows:
        raise UserError(f"{name}:{max(number, 1)}: no sentence; expected one token a line, with its tag")
    return TextTable(name=name, rows=tuple(rows))


def _row(line: int, sentence: Sequence[tuple[str, str]]) -> TextRow:
    tokens, tags = (BLANK.join(side) for side in zip(*sentence, strict=True))
    return TextRow(line, tokens, tags)


def _is_left_out(line: str, *, token_column: int) -> bool:
    """Return whether a line has no token: a comment, the start of a document, or a range or an empty node of CoNLL-U.

    With an id before the token, as in CoNLL-U, every line that begins with # is a comment. Otherwise # may be a token.
    A range such as ``1-2`` is one in ten columns, or if its last column is ``_``: other formats have such ids too.
    """
    first = line.split()[0]
    if token_column > 1:
        conll_u = line.count("\t") + 1 == COLUMNS_OF_CONLL_U or line.split()[-1] == "_"
        between = conll_u and re.fullmatch(r"[0-9]+[-.][0-9]+", first)
        return bool(between) or first[0] == "#" or first == "-DOCSTART-"
    comment = line.startswith("# ") and " = " in line and "\t" not in line
    return comment or first == "-DOCSTART-"


def _begins_with_id(line: str) -> bool:
    """Return whether a line has the columns of CoNLL-U, of which the first is the number of a token, or a range."""
    columns = line.split("\t")
    return len(columns) == COLUMNS_OF_CONLL_U and bool(re.fullmatch(r"[0-9]+([-.][0-9]+)?", columns[0].strip()))


def _token_and_tag(line: str, where: str, *, token_column: int, tag_column: int) -> tuple[str, str]:
    columns = line.split("\t") if "\t" in line else line.split()
    needed = max(token_column, tag_column, 2)
    if len(columns) < needed:
        raise UserError(
            f"{where}: found {len(columns)} column{'s' * (len(columns) > 1)} in {show(line)}; expected at least "
            f"{needed}, a token and its tag with a tab or blanks between them (--data.token-column, --data.tag-column)"
        )
    token, tag = ("_".join(columns[place - 1].split()) for place in (token_column, tag_column or len(columns)))
    for what, value, other in (("tag", token, "token"), ("token", tag, "tag")):
        if not value:
            raise UserError(f"{where}: a {what} without a {other} in {show(line)}; expected both in every line")
    return token, tag


def _tags(table: TextTable) -> tuple[str, ...]:
    tags = tuple(sorted({tag for row in table.rows for tag in row.second.split(BLANK)}))
    where = f"{table.name}:{table.rows[-1].line}"
    if len(tags) < 2:
        raise UserError(f"{where}: up to this last sentence one tag only, {show(tags[0])}; expected at least two")
    if len(tags) > MOST_TAGS:
        raise UserError(
            f"{where}: {len(tags):,} different tags up to this last sentence; expected at most {MOST_TAGS:,} (is "
            "--data.tag-column the column of the tags?)"
        )
    return tags
