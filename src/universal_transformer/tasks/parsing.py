"""Parsing: a sentence to its tree in brackets, generated from a grammar or from your own treebank.

The source has a token for each word. The target has the tokens of `trees`, a word being ``XX``, and ends with the end
id. What is said to a user has the words again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

from universal_transformer.data.columns import Columns, TextRow
from universal_transformer.data.text_table import TextTable
from universal_transformer.data.tokenizer import BLANK, Tokenizer
from universal_transformer.data.tokenizer_files import check_choice
from universal_transformer.data.trees import OPEN, PUNCTUATION, read_treebank_tree
from universal_transformer.errors import UserError
from universal_transformer.files import read_lines, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.grammar import sentences
from universal_transformer.tasks.own_files import OwnFiles, classes
from universal_transformer.tasks.sides.listed import Brackets
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.sides.tokenized import Sentence
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import Length, NumberOf, Positive, Share, check

MOST_LABELS = 1000


@dataclass(frozen=True, kw_only=True)
class ParsingData(OwnFiles):
    """Sentences and their trees: generated from a grammar, or from your own treebank."""

    sides: ClassVar[Sides] = (Sentence, Brackets)
    ROWS: ClassVar = "trees"
    ANSWERS_AS_ROWS: ClassVar = False
    train: str = ""
    """Training trees in brackets, one a line, each word with its part of speech: (S (NP (DT the) (NN dog)) …). Without
    it, sentences are generated. Any file may end in .gz."""
    vocabulary_size: int = 20000
    """At most so many different words; a word that training has once is unknown. Marks of punctuation are always known,
    because scores leave them out."""
    lower_case: bool = False
    """Turn all words into lower case."""
    validation_fraction: Share = 0.1
    seed: NumberOf = 0
    """Seed of the generated sentences, or of what is held out."""
    train_sentences: Positive = 30_000
    """Generated sentences to train on."""
    test_sentences: Positive = 500
    """Generated sentences of each of the sets validation, test and longer."""
    lengths: tuple[Length, Length] = (3, 20)
    """Fewest and most words of a generated sentence of training, validation and test, its last mark included."""
    longer: tuple[Length, Length] = (21, 30)
    """Fewest and most words of the generated sentences of the test set longer."""

    def __post_init__(self) -> None:
        check(self, field="data")
        check_choice("whitespace", self.vocabulary_size, lower_case=self.lower_case)
        for name in ("columns", "separator"):
            if value := getattr(self, name):
                raise UserError(f"--data.{name} {value}: a line is one tree; leave it out")
        for name in ("lengths", "longer"):
            least, most = getattr(self, name)
            if least > most:
                raise UserError(f"data.{name}={least} {most}: expected the fewest and the most words")

    def unread(self) -> Iterator[tuple[str, str]]:
        yield from super().unread()
        if self.train:
            generated = ("train_sentences", "test_sentences", "lengths", "longer")
            yield from ((field, "applies only to generated sentences") for field in generated)

    name = "parsing"
    scored_by = "brackets"

    @property
    def layout(self) -> Columns:
        return Columns("sentence", "tree")

    def has(self, part: str) -> bool:
        return bool(getattr(self, part)) or not self.train

    def read(self, part: str) -> TextTable:
        path = getattr(self, part)
        return read_treebank(path) if path else self._generated(part)

    def learn(self, rows: Sequence[TextRow], given: TextTable) -> Codec[Sentence, Brackets]:
        tokenizer = Tokenizer.train(
            (row.first for row in rows),
            kind="whitespace",
            vocabulary_size=self.vocabulary_size,
            lower_case=self.lower_case,
            least_count=2,
            always=BLANK.join(sorted(PUNCTUATION)) if self.train else "",
        )
        held_too = [label for row in given.rows for label in _row_labels(row)]  # also those of trees that are held out
        labels = classes(held_too, given, what="label", least=1, most=MOST_LABELS)
        return Codec(Sentence(tokenizer, self.max_length, treebank=True), Brackets(labels, self.max_length))

    def load(self, saved: Saved | None = None) -> Task:
        task = super().load(saved)
        if self.train or self.test:
            return task
        notes = list(task.notes)
        tests = {**task.test, "longer": self.encode(task.codec, self._generated("longer"), notes)}
        return replace(task, test=tests, notes=tuple(notes))

    def caveats(self) -> Iterator[str]:
        if not self.train:
            yield "training sentences and their trees are generated from a grammar, they are no treebank"

    def _generated(self, part: str) -> TextTable:
        count = self.train_sentences if part == "train" else self.test_sentences
        lengths = self.longer if part == "longer" else self.lengths
        found = islice(sentences(part, lengths=lengths, seed=self.seed), count)
        rows = [TextRow(number, BLANK.join(one.words), BLANK.join(one.tree)) for number, one in enumerate(found, 1)]
        return TextTable(name=f"generated ({part})", rows=tuple(rows))


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


def _row_labels(row: TextRow) -> set[str]:
    return {token[1:] for token in row.second.split(BLANK) if token.startswith(OPEN)}
