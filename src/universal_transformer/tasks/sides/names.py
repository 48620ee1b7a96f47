"""A row of words out of given lists, without a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import BLANK, END
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show
from universal_transformer.tasks.sides.side import Side
from universal_transformer.typed import listed


@dataclass(frozen=True)
class Names(Side):
    """Ids: 0 padding, 1 start, 2 end, then the names of all lists in order. A source has one name of each list."""

    kind: ClassVar[str] = "names"
    lists: tuple[tuple[str, ...], ...]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for names in self.lists for name in names)

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": END + 1 + len(self._names)}

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "encoder_decoder", "vocabulary.target_size": END + 1 + len(self._names)}

    def encode(self, *names: str) -> tuple[int, ...]:
        """The ids of names, with the end id."""
        return (*[END + 1 + self._names.index(name) for name in names], END)

    def read_line(self, line: str, *, where: str) -> Example:
        """A line has names with blanks between them."""
        words = line.lower().split()
        if len(words) != len(self.lists) or any(
            word not in names for word, names in zip(words, self.lists, strict=True)
        ):
            unknown = next((word for word in words if word not in self._names), "")
            needed = " and ".join(f"one of {listed(names)}" for names in self.lists)
            such = f"such as {BLANK.join(names[-1] for names in self.lists)}"
            guess = suggestion(unknown, self._names)
            raise UserError(f"{where}: {show(line.strip())}: expected {needed}, {such}{guess}")
        return Example(source=self.encode(*words), target=())

    def names(self, positions: Sequence[int]) -> list[str]:
        return [self.render(index) or "<end>" for index in positions]

    def render(self, target: int | Sequence[int]) -> str:
        """The names of ids with blanks between them; what is no name is left out."""
        ids = (target,) if isinstance(target, int) else target
        return BLANK.join(self._names[index - END - 1] for index in ids if index > END)
