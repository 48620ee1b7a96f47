"""A row of characters out of few, without a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import END, SPECIAL, until_end
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.sides.side import Side

FIRST_SYMBOL = len(SPECIAL)


@dataclass(frozen=True, kw_only=True)
class Symbols(Side):
    """Characters to ids and back: 0 padding, 1 start, 2 end, 3 unknown, then `symbols`."""

    kind: ClassVar[str] = "symbols"
    symbols: str
    operator: str = ""
    """If it is not empty: the ids of the numbers on both sides of it, and of an answer, begin with the last digit."""
    reversed_digits: str = ""
    """Digits: the ids of each number that is written with them begin with the last digit."""

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": FIRST_SYMBOL + len(self.symbols)}

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "encoder_decoder", "vocabulary.target_size": FIRST_SYMBOL + len(self.symbols)}

    @property
    def tokens(self) -> Sequence[str]:
        return [*SPECIAL, *self.symbols]

    def encode(self, text: str, *, where: str = "") -> tuple[int, ...]:
        """Turn characters into ids; a character that is no symbol is a UserError naming it."""
        try:
            return tuple(self._ids[character] for character in self._reverse_numbers(text))
        except KeyError as error:
            place = f"{where}: " if where else ""
            raise UserError(f"{place}expected symbols out of {self.symbols!r}, found {show(error.args[0])}") from None

    def example(self, source: str, target: str, *, group: str = "") -> Example:
        """The example of a source and its target, with the end id after the target."""
        return Example(source=self.encode(source), target=(*self.encode(target), END), group=group)

    def read_line(self, line: str, *, where: str) -> Example:
        text = line.strip()
        source = self.encode(text, where=where)
        if self.operator and not re.fullmatch(f"[^{self.operator}]+[{self.operator}][^{self.operator}]+", text):
            one, other = (self.symbols.replace(self.operator, "")[place] for place in (1, -1))
            raise UserError(
                f"{where}: found {show(text)}; expected two numbers with {self.operator} between them, such as "
                f"{one}{self.operator}{other}"
            )
        return Example(source=source, target=())

    def names(self, positions: Sequence[int]) -> list[str]:
        return [self._symbol(index) for index in positions]

    def render(self, target: Sequence[int]) -> str:
        """Turn ids up to the end id into text; ids without a symbol become "�"."""
        return self._reverse_numbers("".join(map(self._symbol, until_end(target, end_id=END))))

    def _reverse_numbers(self, text: str) -> str:
        """`text` with its numbers reversed, if the side does that; twice is `text` again."""
        digits = self.symbols.replace(self.operator, "") if self.operator else self.reversed_digits
        return re.sub(f"[{digits}]+", lambda number: number[0][::-1], text) if digits else text

    def _symbol(self, identifier: int) -> str:
        index = identifier - FIRST_SYMBOL
        return self.symbols[index] if 0 <= index < len(self.symbols) else "\N{REPLACEMENT CHARACTER}"

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {symbol: FIRST_SYMBOL + index for index, symbol in enumerate(self.symbols)}
