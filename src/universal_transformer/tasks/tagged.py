"""Your own tagged sentences in CoNLL columns: one class, its tag, for each token.

A file has one token a line, with its tag in another column and a blank line between sentences. Columns are separated by
tabs, or by blanks in a line without a tab. Lines of comments (``# text = …`` of CoNLL-U) and ``-DOCSTART-`` lines are
left out. Words that occur once in training are unknown, so that the model learns what to do with unknown words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from universal_transformer.data.text_table import Columns, TextRow, TextTable
from universal_transformer.data.tokenizer import BLANK, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines, show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.own_files import OwnFiles, classes
from universal_transformer.tasks.sides.listed import Tags
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Sentence
from universal_transformer.typed import NumberOf, Positive, Share, check

WORDS: Literal["whitespace"] = "whitespace"
"""The kind of tokenizer that takes each token of a line as it is."""
MOST_TAGS = 10_000
COLUMNS_OF_CONLL_U = 10


@dataclass(frozen=True, kw_only=True)
class TaggedData(OwnFiles):
    """Sentences from your own files, with a tag for each token."""

    sides: ClassVar[Sides] = (Sentence, Tags)
    ROWS: ClassVar = "sentences"
    needs: ClassVar = ("one token a line with its tag, a blank line between sentences",)
    train: str = ""
    """Training sentences in CoNLL columns: one token a line with its tag, a blank line between sentences. Any file may
    end in .gz."""
    token_column: Positive = 1
    """Column of the tokens, from 1 on (CoNLL-U: 2)."""
    tag_column: NumberOf = 0
    """Column of the tags, from 1 on (CoNLL-U: 4 or 5). 0: the last."""
    vocabulary_size: int = 20000
    """At most so many different words."""
    lower_case: bool = False
    """Turn all tokens into lower case."""
    max_length: Positive = 256
    """Tokens of the longest sentence; longer ones are left out and counted."""
    validation_fraction: Share = 0.1

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(WORDS, self.vocabulary_size, lower_case=self.lower_case)
        if self.token_column == self.tag_column:
            raise UserError(f"data.tag_column={self.tag_column}: the tokens are in this column; choose another one")

    @property
    def columns(self) -> Columns:
        return Columns("tokens", "tags")

    name = "tagged"
    scored_by = "tags"

    def read(self, part: str) -> TextTable:
        return read_conll(getattr(self, part), token_column=self.token_column, tag_column=self.tag_column)

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Sentence, Tags]:
        tags = [tag for row in given.rows for tag in row.second.split(BLANK)]
        tokenizer = Tokenizer.train(
            (row.first for row in rows),
            kind=WORDS,
            vocabulary_size=self.vocabulary_size,
            lower_case=self.lower_case,
            least_count=2,
        )
        return Codec(Sentence(tokenizer, self.max_length), Tags(classes(tags, given, what="tag", most=MOST_TAGS)))


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
