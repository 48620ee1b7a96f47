"""A sentence of words with blanks between them, without an end: a position for each word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import BLANK, Tokenizer
from universal_transformer.data.trees import CLOSE, OPEN, treebank_word
from universal_transformer.errors import UserError
from universal_transformer.tasks.sides.side import Side, answer_notes, too_long


@dataclass(frozen=True)
class Sentence(Side):
    """The words of a sentence, as a tokenizer of the kind "whitespace" has them."""

    kind: ClassVar[str] = "sentence"
    tokenizer: Tokenizer
    max_length: int
    """Most words."""
    treebank: bool = False
    """Whether words are written as in treebanks, with ``-LRB-`` and ``-RRB-`` for brackets."""

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": len(self.tokenizer)}

    @property
    def tokens(self) -> Sequence[str]:
        return self.tokenizer.tokens()

    @property
    def size(self) -> str:
        return f"{len(self.tokenizer):,} words"

    @property
    def unknown_id(self) -> int:
        return self.tokenizer.unknown_id

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example for each line of words with blanks between them; empty lines are left out."""
        for number, line in lines:
            if line.strip():
                where, words = f"{name}:{number}", line.split()
                text = BLANK.join(map(treebank_word, words) if self.treebank else words)
                ids = tuple(self.tokenizer.encode(text))
                if not self.fits(ids):
                    raise UserError(too_long(where, len(ids), what="sentence", limit=self.max_length))
                notes = _tree_notes(line, where) if self.treebank else answer_notes(line, where)
                yield Example(source=ids, target=(), unknown=self.tokenizer.unknown(text), notes=notes)

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        del places  # any text has ids
        return [tuple(ids) for ids in self.tokenizer.encode_many(texts)]

    def fits(self, encoded: Sequence[int]) -> bool:
        return len(encoded) <= self.max_length

    def names(self, positions: Sequence[int]) -> list[str]:
        return [self.tokenizer.label(index) for index in positions]

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self.tokenizer.spans(text)


def _tree_notes(line: str, where: str) -> tuple[str, ...]:
    """A note if a line to parse looks like a line of a treebank."""
    looks = line.lstrip().startswith(OPEN) and line.rstrip().endswith(CLOSE)
    return (f"{where}: brackets, which are read as words; a line is the words alone, without a tree",) * looks
