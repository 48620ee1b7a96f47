"""A Sudoku board: the given cells as a source, the digits of the others as a target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.boards import BoardShape
from universal_transformer.tasks.sides.side import Side

BoardSide = Literal[4, 6, 9]
SHAPES: dict[BoardSide, BoardShape] = {4: BoardShape(2, 2), 6: BoardShape(2, 3), 9: BoardShape(3, 3)}
BLANK, FIRST_DIGIT = 1, 2


@dataclass(frozen=True, kw_only=True)
class Cells(Side):
    """Cells to ids and back: 0 padding, 1 a blank cell, then the digits. The class of a cell is its digit."""

    kind: ClassVar[str] = "board"
    names_classes: ClassVar[bool] = True
    side: BoardSide

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {
            "inputs.kind": "tokens",
            "vocabulary.size": FIRST_DIGIT + self.side,
            "coordinates.box_rows": SHAPES[self.side].box_rows,
            "coordinates.box_columns": SHAPES[self.side].box_columns,
        }

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "tagger", "vocabulary.num_classes": 1 + self.side}

    @property
    def view(self) -> Mapping[str, Any]:
        shape = SHAPES[self.side]
        return {"form": "board", "side": self.side, "box_rows": shape.box_rows, "box_columns": shape.box_columns}

    def input_text(self, source: Sequence[int]) -> str:
        return "".join(self.names(source))

    def ids(self, cells: Sequence[int]) -> tuple[int, ...]:
        return tuple([BLANK + digit for digit in cells])

    def read_line(self, line: str, *, where: str) -> Example:
        """The target is the given cells.

        UserError for another number of cells, for what is no digit, for a digit twice in a row, column or box, and for
        a board that has no solution.
        """
        cells = self._cells(line.strip(), where=where)
        if SHAPES[self.side].unsolvable(cells):
            raise UserError(f"{where}: the given cells contradict each other: this board has no solution")
        return Example(source=self.ids(cells), target=cells)

    def _cells(self, text: str, *, where: str) -> tuple[int, ...]:
        side, digits = self.side, "0123456789"[: self.side + 1]
        # first the size, because a board of another size may have higher digits; what is no cell does not count
        if len(text) != side**2 and set(text) <= set("0123456789."):
            raise UserError(f"{where}: a board of {len(text)} cells; expected {side**2}, row after row")
        if wrong := sorted(set(text) - {*digits, "."}):
            raise UserError(f"{where}: found {show(wrong[0])}; expected digits 1 to {side}, and 0 or . as blank")
        cells = tuple(int(character) for character in text.replace(".", "0"))
        seen: set[tuple[int, int]] = set()
        for digit, units in zip(cells, SHAPES[side].units, strict=True):
            for kind, unit in zip(("row", "column", "box"), units, strict=True):
                if digit and (digit, unit) in seen:
                    raise UserError(f"{where}: the digit {digit} twice in {kind} {unit % side + 1}; expected once")
                seen.add((digit, unit))
        return cells

    def completed(self, text: str, line: str) -> str:
        """A board with the digits that the input line gives."""
        return "".join(digit if cell in "0." else cell for cell, digit in zip(line.strip(), text, strict=True))

    def fault(self, text: str) -> str:
        """What is wrong with an answer: a blank cell, or a digit twice in a row, column or box."""
        if "." in text:
            return f"a board with {text.count('.')} blank cells"
        try:
            self._cells(text, where="a board that is not solved")
        except UserError as error:
            return str(error)
        return ""

    def names(self, positions: Sequence[int]) -> list[str]:
        return [str(index - BLANK or ".") for index in positions]

    def render(self, target: Sequence[int]) -> str:
        """Turn the digits of cells into text; 0 is a dot."""
        return "".join(str(digit or ".") for digit in target)
