"""Your own tagged sentences in CoNLL columns: one class, its tag, for each token.

A file has one token a line, with its tag in another column and a blank line between sentences. Columns are separated by
tabs, or by blanks in a line without a tab. Lines of comments (``# text = …`` of CoNLL-U) and ``-DOCSTART-`` lines are
left out. Words that occur once in training are unknown, so that the model learns what to do with unknown words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from universal_transformer.data.columns import JSON_LINES, Columns, Lines, TextRow, ending
from universal_transformer.data.example import Example
from universal_transformer.data.text_table import TextTable, read_table
from universal_transformer.data.tokenizer import BLANK, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import Line, show, show_path, try_lines
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.own_files import Encoded, OwnFiles, class_weights, classes
from universal_transformer.tasks.sides.listed import Tags
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Sentence
from universal_transformer.typed import Positive, Share, check

MOST_TAGS = 10_000
COLUMNS_OF_CONLL_U = 10
CONLL = (".conll", ".conllu", ".conllx", ".iob", ".bio")
"""Endings of files of columns, which others may have too."""


@dataclass(frozen=True, kw_only=True)
class TaggedData(OwnFiles):
    """Sentences from your own files, with a tag for each token."""

    sides: ClassVar[Sides] = (Sentence, Tags)
    ROWS: ClassVar = "sentences"
    needs: ClassVar = ("one token a line with its tag, a blank line between sentences",)
    train: str = ""
    """Training sentences in CoNLL columns: one token a line with its tag, a blank line between sentences; or JSON lines
    (.jsonl) with "tokens" and "tags". Any file may end in .gz."""
    columns: str = ""
    """Numbers of the columns (CoNLL-U: tokens=2,tags=4; default: the first and the last), or keys of JSON lines."""
    separator: str = ""
    """What stands between columns (default: a tab, or blanks in a line without a tab)."""
    tokenizer: Literal["whitespace", "character", "bpe"] = "whitespace"
    """What a position is: whitespace (a word, unknown if training has it once), or a part of a word, of which the first
    has the tag: character, bpe (byte pairs merged by frequency)."""
    class_weights: str = ""
    """Weights of tags in the loss: balanced, each as if it had as many tokens as the others, or TAG=WEIGHT,… (1 for
    others). Their mean over the training tokens is made 1."""
    vocabulary_size: int = 20000
    """At most so many different tokens."""
    lower_case: bool = False
    """Turn all tokens into lower case."""
    max_length: Positive = 256
    """Positions of the longest sentence; longer ones are left out and counted."""
    validation_fraction: Share = 0.1

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice(self.tokenizer, self.vocabulary_size, lower_case=self.lower_case)
        assert self.layout, "a UserError for columns that cannot be"

    @property
    def layout(self) -> Columns:
        return Columns("tokens", "tags", words=True, chosen=self.columns, separator=self.separator)

    name = "tagged"
    scored_by = "tags"

    def read(self, part: str) -> TextTable:
        if ending(path := getattr(self, part)) not in JSON_LINES:
            return read_conll(path, self.layout)
        table = read_table(path, self.layout)
        for row in table.rows:
            if (tokens := len(row.first.split())) != (tags := len(row.second.split())):
                raise UserError(f"{table.name}:{row.line}: {tokens} tokens and {tags} tags; expected a tag for each")
        return table

    def encode(self, codec: Codec[Any, Any], table: TextTable, notes: list[str]) -> list[Example]:
        return [
            replace(example, target=codec.source.at_words(example.source, example.target))
            for example in super().encode(codec, table, notes)
        ]

    def encode_train(self) -> tuple[Codec[Any, Any], Encoded]:
        codec, encoded = super().encode_train()
        if not self.class_weights:
            return codec, encoded
        targets = [example.target for example in encoded.examples if isinstance(example.target, tuple)]
        counts = Counter(tag - 1 for target in targets for tag in target if tag)
        weights = (0.0, *class_weights(self.class_weights, codec.target.tags, counts, what="tag"))
        examples = [
            replace(example, weight=tuple(weights[tag] for tag in target))
            for example, target in zip(encoded.examples, targets, strict=True)
        ]
        return codec, replace(encoded, examples=examples)

    def inputs(self, lines: Lines, *, name: str, codec: Codec[Any, Any]) -> Iterator[Line]:
        """Yield sentences: of a file of columns (by its ending, or because its first token has a tab after it) the
        tokens with blanks between them, of any other its lines.
        """
        lines, begin = iter(lines), list[Line]()
        for line in lines:
            begin.append(line)
            if line.fault or (line.text.strip() and not line.text.startswith("# ")):
                break
        tabs = bool(begin) and "\t" in begin[-1].text
        lines = chain(begin, lines)
        if ending(name) in JSON_LINES:
            yield from super().inputs(lines, name=name, codec=codec)
        elif tabs or ending(name) in CONLL:
            for number, sentence in _sentences(lines, self.layout, name=name, least=1):
                yield Line(number, BLANK.join(token for token, _ in sentence))
        else:
            yield from lines

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Sentence, Tags]:
        tags = [tag for row in given.rows for tag in row.second.split(BLANK)]
        parts = self.tokenizer != "whitespace"
        tokenizer = Tokenizer.train(
            (BLANK * parts + row.first for row in rows),
            kind=self.tokenizer,
            vocabulary_size=self.vocabulary_size,
            lower_case=self.lower_case,
            least_count=1 if parts else 2,
        )
        sentence = Sentence(tokenizer, self.max_length, parts=parts)
        return Codec(sentence, Tags(classes(tags, given, what="tag", most=MOST_TAGS)))


def read_conll(path: str | Path, columns: Columns) -> TextTable:
    """Read the sentences of a file: the tokens, and the tags, of each with blanks between them.

    Blanks inside of a token become underscores. UserError for a line without a token or without a tag, and for a file
    without sentences.
    """
    name, lines = show_path(path), list(try_lines(path))
    with_tabs = [line.text for line in lines if "\t" in line.text]
    if _indices(columns)[0] == 0 and with_tabs and all(map(_begins_with_id, with_tabs)):
        raise UserError(
            f"{name}: the first of ten columns has the number of each token, as in CoNLL-U, and no tokens; its words "
            "and their parts of speech: --data.columns tokens=2,tags=4"
        )
    sentences = _sentences(lines, columns, name=name, least=2)
    rows = [TextRow(number, *map(BLANK.join, zip(*sentence, strict=True))) for number, sentence in sentences]
    if not rows:
        raise UserError(f"{name}:{lines[-1].number}: no sentence; expected one token a line, with its tag")
    return TextTable(name=name, rows=tuple(rows))


def _indices(columns: Columns) -> tuple[int, int]:
    """Return the places of token and tag in a line, from 0 on; -1 is the last."""
    if not columns.chosen:
        return 0, -1
    token, tag = (columns.places[name][0] for name in columns.names)
    refuse(
        (not (token.isdecimal() and tag.isdecimal() and int(token) and int(tag)), "expected numbers from 1 on"),
        (token == tag, "one column for tokens and tags; choose another one"),
        at=f"--data.columns {show(columns.chosen)}",
    )
    return int(token) - 1, int(tag) - 1


def _sentences(lines: Lines, columns: Columns, *, name: str, least: int) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Yield the number of the first line of each sentence, and its tokens with their tags, which are empty where a line
    with `least` columns has none.
    """
    sentence, first, places = list[tuple[str, str]](), 0, _indices(columns)
    for number, line, fault in chain(lines, [Line(0)]):
        if fault:
            raise fault
        if sentence and not line.strip():
            yield first, sentence
            sentence = []
        if line.strip() and not _is_left_out(line, with_ids=places[0] > 0):
            first = first if sentence else number
            sentence.append(_token_and_tag(line, f"{name}:{number}", columns, places=places, least=least))


def _is_left_out(line: str, *, with_ids: bool) -> bool:
    """Return whether a line has no token: a comment, the start of a document, or a range or an empty node of CoNLL-U.

    With an id before the token, as in CoNLL-U, every line that begins with # is a comment. Otherwise # may be a token.
    A range such as ``1-2`` is one in ten columns, or if its last column is ``_``: other formats have such ids too.
    """
    first = line.split()[0]
    if with_ids:
        conll_u = line.count("\t") + 1 == COLUMNS_OF_CONLL_U or line.split()[-1] == "_"
        between = conll_u and re.fullmatch(r"[0-9]+[-.][0-9]+", first)
        return bool(between) or first[0] == "#" or first == "-DOCSTART-"
    comment = line.startswith("# ") and " = " in line and "\t" not in line
    return comment or first == "-DOCSTART-"


def _begins_with_id(line: str) -> bool:
    """Return whether a line has the columns of CoNLL-U, of which the first is the number of a token, or a range."""
    columns = line.split("\t")
    return len(columns) == COLUMNS_OF_CONLL_U and bool(re.fullmatch(r"[0-9]+([-.][0-9]+)?", columns[0].strip()))


def _token_and_tag(line: str, where: str, columns: Columns, *, places: tuple[int, int], least: int) -> tuple[str, str]:
    cells = columns.cells(line, where) if columns.separator or "\t" in line else line.split()
    needed = max(least, places[0] + 1, places[1] + 1 if least > 1 else 1)
    if len(cells) < needed:
        raise UserError(
            f"{where}: found {len(cells)} column{'s' * (len(cells) > 1)} in {show(line)}; expected at least "
            f"{needed}, a token and its tag with a tab or blanks between them (--data.columns, --data.separator)"
        )
    token, tag = ("_".join(cells[place].split()) if place < len(cells) else "" for place in places)
    for what, value, other in (("tag", token, "token"), ("token", tag, "tag")):
        if not value and least > 1:
            raise UserError(f"{where}: a {what} without a {other} in {show(line)}; expected both in every line")
    return token, tag
