"""One class out of several with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from universal_transformer.data.example import NO_CLASS
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.sides.side import Side, unknown_name


@dataclass(frozen=True)
class Classes(Side):
    """The names of the classes, from 0 on; `NO_CLASS` is an answer that is none of them."""

    kind: ClassVar[str] = "classes"
    names_classes: ClassVar[bool] = True
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.labels)) < len(self.labels):
            raise UserError(f"labels: found {show(self.labels)}; expected different strings")

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "classifier", "vocabulary.num_classes": len(self.labels)}

    @property
    def tokens(self) -> Sequence[str]:
        return self.labels

    @property
    def size(self) -> str:
        return f"{len(self.labels):,} labels"

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The class of each name."""
        return {label: index for index, label in enumerate(self.labels)}

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[int]:
        for text, place in zip(texts, places, strict=True):
            if text.strip() not in self.ids:
                raise UserError(f"{place}: {unknown_name(text.strip(), self.labels, what='label')}")
        return [self.ids[text.strip()] for text in texts]

    def pieces(self, ids: int) -> list[str]:
        return [] if ids == NO_CLASS else [self.labels[ids]]

    def render(self, target: int) -> str:
        return "<unknown>" if target == NO_CLASS else self.labels[target]
