"""The tree of a sentence as tokens: brackets with their labels, and ``XX`` for each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from universal_transformer.data.tokenizer import BLANK, END, SPECIAL, UNKNOWN, until_end
from universal_transformer.data.trees import CLOSE, OPEN, WORD, answer_tree, joined, treebank_word
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.sides.side import Side, unknown_name

NO_PIECE = SPECIAL[UNKNOWN]
"""Written for an id that is no token of a tree; only an untrained model gives it."""


@dataclass(frozen=True)
class Brackets(Side):
    """The labels in the order of their ids, and the most tokens of a tree, ``<end>`` included.

    Ids: 2 the end, 4 a word, then an opening bracket of each label, then a closing bracket of each.
    """

    kind: ClassVar[str] = "tree"
    labels: tuple[str, ...]
    max_length: int

    def __post_init__(self) -> None:
        if list(self.labels) != sorted(set(self.labels)):
            raise UserError(f"labels: found {show(self.labels)}; expected different strings, sorted")

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "encoder_decoder", "vocabulary.target_size": len(SPECIAL) + len(self._tokens)}

    @property
    def tokens(self) -> Sequence[str]:
        return [*SPECIAL, *self._tokens]

    @property
    def size(self) -> str:
        return f"{len(self.labels):,} labels"

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        """The ids of the tokens of trees, which have blanks between them."""
        encoded = []
        for text, place in zip(texts, places, strict=True):
            tokens = text.split(BLANK)
            if unknown := sorted({token[1:] for token in tokens if token not in self._ids}):
                raise UserError(f"{place}: {unknown_name(unknown[0], self.labels, what='label')}")
            encoded.append((*(self._ids[token] for token in tokens), END))
        return encoded

    def fits(self, encoded: Sequence[int]) -> bool:
        return len(encoded) <= self.max_length

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._token(index) for index in until_end(ids)]

    def render(self, target: Sequence[int]) -> str:
        """The tree as text, with ``XX`` for each word; it may be no valid tree."""
        return joined(self.pieces(target))

    def completed(self, text: str, line: str) -> str:
        """A tree with the words of its sentence, `line`, in their places; another text as it is."""
        tree = answer_tree(text, words=[*map(treebank_word, line.split())])
        return text if tree is None else str(tree)

    @cached_property
    def _tokens(self) -> list[str]:
        return [WORD, *(f"{bracket}{label}" for bracket in (OPEN, CLOSE) for label in self.labels)]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self._tokens, start=len(SPECIAL))}

    def _token(self, index: int) -> str:
        place = index - len(SPECIAL)
        return self._tokens[place] if 0 <= place < len(self._tokens) else NO_PIECE
