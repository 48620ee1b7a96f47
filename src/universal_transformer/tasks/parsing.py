"""Parsing: a sentence to its tree in brackets, generated from a grammar or from your own treebank.

The source has a token for each word. The target has the tokens of `trees`, a word being ``XX``, and ends with the end
id. What is said to a user has the words again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.text_table import Columns, TextRow, TextTable
from universal_transformer.data.tokenizer import BLANK, END, SPECIAL, UNKNOWN, Tokenizer, until_end
from universal_transformer.data.tokenizer_files import check_choice
from universal_transformer.data.trees import (
    CLOSE,
    OPEN,
    PUNCTUATION,
    WORD,
    answer_tree,
    joined,
    read_treebank_tree,
    treebank_word,
)
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines, show, show_path
from universal_transformer.tasks.codecs import SavedCodec, token_fields, too_long
from universal_transformer.tasks.grammar import sentences
from universal_transformer.tasks.tables import Encoded, OwnTables
from universal_transformer.tasks.task import Codec, Saved, Task
from universal_transformer.typed import AtLeastOne, AtLeastTwo, NumberOf, Share, check

MOST_LABELS = 1000
NO_PIECE = SPECIAL[UNKNOWN]
"""Written for an id that is no token of a tree; only an untrained model gives it."""


@dataclass(frozen=True)
class TreeCodec(SavedCodec):
    """A tokenizer of words, the labels in the order of their ids, and the limit of a sentence and of a tree.

    Ids of a target: 2 the end, 4 a word, then an opening bracket of each label, then a closing bracket of each.
    """

    kind: ClassVar[str] = "trees"
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    max_length: int

    def __post_init__(self) -> None:
        if list(self.labels) != sorted(set(self.labels)):
            raise UserError(f"labels: found {show(self.labels)}; expected different strings, sorted")

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the words and the labels."""
        size, target_size = len(self.tokenizer), len(SPECIAL) + len(self._tokens)
        return token_fields("encoder_decoder", size=size, target_size=target_size)

    def example(self, words: Sequence[int], tree: str) -> Example:
        """Return the example of the ids of a sentence and the tokens of its tree, with blanks between them."""
        return Example(source=tuple(words), target=(*(self._ids[token] for token in tree.split(BLANK)), END))

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {"source": self.tokenizer.tokens(), "target": [*SPECIAL, *self._tokens]}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example without a tree for each line of words with blanks between them, but for empty lines."""
        for number, line in lines:
            if line.strip():
                where, text = f"{name}:{number}", BLANK.join(map(treebank_word, line.split()))
                ids = tuple(self.tokenizer.encode(text))
                if len(ids) > self.max_length:
                    raise UserError(too_long(where, len(ids), what="sentence", limit=self.max_length))
                yield Example(
                    source=ids, target=(), unknown=self.tokenizer.unknown(text), notes=_line_notes(line, where)
                )

    def render(self, target: int | Sequence[int]) -> str:
        """Return the tree of target ids as text, with ``XX`` for each word; it may be no valid tree."""
        assert not isinstance(target, int), "a target is a sequence of ids"
        return joined([self._token(index) for index in until_end(target)])

    def completed(self, text: str, line: str) -> str:
        """Return a tree with the words of its sentence, `line`, in their places; another text as it is."""
        tree = answer_tree(text, words=[*map(treebank_word, line.split())])
        return text if tree is None else str(tree)

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self.tokenizer.spans(text)

    @property
    def vocabulary(self) -> str:
        return f"{len(self.tokenizer):,} words, {len(self.labels):,} labels"

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        assert isinstance(example.target, tuple)
        return self.words(example), [self._token(index) for index in until_end(example.target)]

    def words(self, example: Example) -> list[str]:
        return [self.tokenizer.label(index) for index in example.source if isinstance(index, int)]

    @cached_property
    def _tokens(self) -> list[str]:
        return [WORD, *(f"{bracket}{label}" for bracket in (OPEN, CLOSE) for label in self.labels)]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self._tokens, start=len(SPECIAL))}

    def _token(self, index: int) -> str:
        place = index - len(SPECIAL)
        return self._tokens[place] if 0 <= place < len(self._tokens) else NO_PIECE


@dataclass(frozen=True, kw_only=True)
class ParsingData:
    """Sentences and their trees: generated from a grammar, or from your own treebank."""

    codec_class: ClassVar[type[Codec]] = TreeCodec
    FILES: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    train: str = ""
    """Training trees in brackets, one a line, each word with its part of speech: (S (NP (DT the) (NN dog)) …). Without
    it, sentences are generated. Any file may end in .gz."""
    validation: str = ""
    """Validation trees, like `train`; without it a part of the training trees is held out."""
    test: str = ""
    """Test trees, like `train`; without it the validation trees are scored."""
    vocabulary_size: int = 20000
    """At most so many different words; a word that training has once is unknown. Marks of punctuation are always known,
    because scores leave them out."""
    lower_case: bool = False
    """Turn all words into lower case."""
    max_length: AtLeastTwo = 256
    """Tokens of the longest sentence or tree, <end> included; longer ones are left out and counted."""
    validation_fraction: Share = 0.1
    """Part of the training trees held out if no validation file is named."""
    seed: NumberOf = 0
    """Seed of the generated sentences, or of what is held out."""
    train_sentences: AtLeastOne = 30_000
    """Generated sentences to train on."""
    test_sentences: AtLeastOne = 500
    """Generated sentences of each of the sets validation, test and longer."""
    lengths: tuple[AtLeastOne, AtLeastOne] = (3, 20)
    """Fewest and most words of a generated sentence of training, validation and test, its last mark included."""
    longer: tuple[AtLeastOne, AtLeastOne] = (21, 30)
    """Fewest and most words of the generated sentences of the test set longer."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice("whitespace", self.vocabulary_size, lower_case=self.lower_case)
        for name in ("lengths", "longer"):
            least, most = getattr(self, name)
            if least > most:
                raise UserError(f"data.{name}={least} {most}: expected the fewest and the most words")

    def load(self) -> Task:
        """Read or generate the trees, learn words and labels from those of training, encode all."""
        given = self._tables.given()
        tables, notes = self._tables.split(given)
        tokenizer = Tokenizer.train(
            (row.first for row in tables["train"].rows),
            kind="whitespace",
            vocabulary_size=self.vocabulary_size,
            lower_case=self.lower_case,
            least_count=2,
            always=BLANK.join(sorted(PUNCTUATION)) if self.train else "",
        )
        labels = _labels(given["train"])  # also those that only trees which are held out have
        codec = TreeCodec(tokenizer=tokenizer, labels=labels, max_length=self.max_length)
        return self._task(codec, self._tables.encode(tables, notes, partial(self._encode, codec)))

    def reload(self, saved: Saved) -> Task:
        """Read or generate the test trees and encode them with the saved codec."""
        codec = saved.codec
        assert isinstance(codec, TreeCodec)
        return self._task(codec, self._tables.encode_again(saved, partial(self._encode, codec)))

    @property
    def _tables(self) -> OwnTables:
        named = [part for part in ("train", "validation", "test") if getattr(self, part) or not self.train]
        return OwnTables(
            columns=Columns("sentence", "tree"),
            read=self._read,
            named=named,
            fraction=self.validation_fraction,
            seed=self.seed,
            what="trees",
        )

    def _read(self, part: str) -> TextTable:
        path = getattr(self, part)
        return read_treebank(path) if path else self._generated(part)

    def _generated(self, part: str) -> TextTable:
        count = self.train_sentences if part == "train" else self.test_sentences
        lengths = self.longer if part == "longer" else self.lengths
        found = islice(sentences(part, lengths=lengths, seed=self.seed), count)
        rows = [TextRow(number, BLANK.join(one.words), BLANK.join(one.tree)) for number, one in enumerate(found, 1)]
        return TextTable(name=f"generated ({part})", rows=tuple(rows))

    def _task(self, codec: TreeCodec, found: Encoded) -> Task:
        notes, tests = list(found.notes), dict(found.test)
        if not self.train:
            notes.append("training sentences and their trees are generated from a grammar, they are no treebank")
        if not self.train and not self.test:
            tests["longer"] = self._encode(codec, self._generated("longer"), notes)
        found = replace(found, notes=tuple(notes), test=tests)
        return found.task("parsing", codec=codec, metric="brackets", model_fields=codec.model_fields)

    def _encode(self, codec: TreeCodec, table: TextTable, notes: list[str]) -> list[Example]:
        """Encode a table; how many of its trees are too long is added to `notes`."""
        examples = []
        for row, ids in zip(table.rows, codec.tokenizer.encode_many([row.first for row in table.rows]), strict=True):
            if unknown := sorted(_row_labels(row) - set(codec.labels)):
                known = f"{', '.join(map(show, codec.labels[:20]))}{', …' * (len(codec.labels) > 20)}"
                raise UserError(
                    f"{table.name}:{row.line}: unknown label {show(unknown[0])}; those of the training file are {known}"
                )
            if max(len(ids), row.second.count(BLANK) + 2) <= self.max_length:
                examples.append(codec.example(ids, row.second))
        notes += table.note_skipped(kept=len(examples), max_length=self.max_length, what="tree")
        return examples


def read_treebank(path: str) -> TextTable:
    """Read the trees of a file, one a line: the words, and the tokens of the tree, each with blanks between them.

    Empty lines are left out. UserError for a line that is no tree, and for a file without one.
    """
    name, rows, number = show_path(path), [], 0
    for number, line in read_lines(path):
        if line.strip():
            try:
                tree = read_treebank_tree(line)
            except UserError as error:
                raise UserError(f"{name}:{number}: {error}") from error
            rows.append(TextRow(number, BLANK.join(tree.words()), BLANK.join(tree.tokens())))
    if not rows:
        raise UserError(f"{name}:{max(number, 1)}: no tree; expected one in brackets a line")
    return TextTable(name=name, rows=tuple(rows))


def _labels(table: TextTable) -> tuple[str, ...]:
    labels = tuple(sorted(set().union(*map(_row_labels, table.rows))))
    if len(labels) > MOST_LABELS:
        raise UserError(f"{table.name}: {len(labels):,} different labels; expected at most {MOST_LABELS:,}")
    return labels


def _line_notes(line: str, where: str) -> tuple[str, ...]:
    """Return a note if a line to parse looks like a line of a treebank."""
    looks = line.lstrip().startswith(OPEN) and line.rstrip().endswith(CLOSE)
    return (f"{where}: brackets, which are read as words; a line is the words alone, without a tree",) * looks


def _row_labels(row: TextRow) -> set[str]:
    return {token[1:] for token in row.second.split(BLANK) if token.startswith(OPEN)}
