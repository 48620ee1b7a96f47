"""A tag for each position of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from universal_transformer.data.example import PADDING
from universal_transformer.data.tokenizer import BLANK
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.sides.side import Side, unknown_name

NO_TAG = "_"
"""Written for a position without a tag; only an untrained model gives it."""


@dataclass(frozen=True)
class Tags(Side):
    """The tags in the order of their classes, from 1 on."""

    kind: ClassVar[str] = "tags"
    names_classes: ClassVar[bool] = True
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if list(self.tags) != sorted(set(self.tags)):
            raise UserError(f"tags: found {show(self.tags)}; expected different strings, sorted")

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "tagger", "vocabulary.num_classes": 1 + len(self.tags)}

    @property
    def tokens(self) -> Sequence[str]:
        return [NO_TAG, *self.tags]

    @property
    def size(self) -> str:
        return f"{len(self.tags):,} tags"

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        classes, encoded = {tag: index for index, tag in enumerate(self.tags, start=1)}, []
        for text, place in zip(texts, places, strict=True):
            if unknown := [tag for tag in text.split(BLANK) if tag not in classes]:
                within = " in the sentence from this line on"
                message = unknown_name(unknown[0], self.tags, what="tag", within=within)
                raise UserError(f"{place}: {message}")
            encoded.append(tuple(classes[tag] for tag in text.split(BLANK)))
        return encoded

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.render(index) for index in ids]

    def render(self, target: int | Sequence[int]) -> str:
        """The name of a tag, or the tags of a sentence with blanks between them."""
        indices = (target,) if isinstance(target, int) else target
        return BLANK.join(NO_TAG if index == PADDING else self.tags[index - 1] for index in indices)
