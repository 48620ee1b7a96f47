"""A sentence of words with blanks between them, without an end: a position for each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import BLANK
from universal_transformer.data.trees import CLOSE, OPEN, treebank_word
from universal_transformer.errors import UserError
from universal_transformer.tasks.sides.side import answer_notes, too_long
from universal_transformer.tasks.sides.tokenized import Tokenized


@dataclass(frozen=True)
class Sentence(Tokenized):
    """The words of a sentence, as a tokenizer of the kind "whitespace" has them."""

    kind: ClassVar[str] = "sentence"
    max_length: int
    """Most words."""
    treebank: bool = False
    """Whether words are written as in treebanks, with ``-LRB-`` and ``-RRB-`` for brackets."""

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": len(self.tokenizer)}

    @property
    def size(self) -> str:
        return f"{len(self.tokenizer):,} words"

    def read_line(self, line: str, *, where: str) -> Example:
        """A line has words with blanks between them."""
        words = line.split()
        text = BLANK.join(map(treebank_word, words) if self.treebank else words)
        ids = tuple(self.tokenizer.encode(text))
        if not self.fits(ids):
            raise UserError(too_long(where, len(ids), what="sentence", limit=self.max_length))
        notes = _tree_notes(line, where) if self.treebank else answer_notes(line, where)
        return Example(source=ids, target=(), unknown=self.tokenizer.unknown(text), notes=notes)

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        del places  # any text has ids
        return [tuple(ids) for ids in self.tokenizer.encode_many(texts)]

    def fits(self, encoded: Sequence[int]) -> bool:
        return len(encoded) <= self.max_length


def _tree_notes(line: str, where: str) -> tuple[str, ...]:
    """A note if a line to parse looks like a line of a treebank."""
    looks = line.lstrip().startswith(OPEN) and line.rstrip().endswith(CLOSE)
    return (f"{where}: brackets, which are read as words; a line is the words alone, without a tree",) * looks
