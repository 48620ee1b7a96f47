"""Sudoku: fill the blank cells of a board, so that each row, column and box has each digit once.

A board is one line of digits, row by row, with ``0`` or ``.`` for a blank cell. Each cell is a position with a class,
its digit; the cells that are given have none in training and in scores. All boards have one solution. They are drawn
from a seed (`boards`): a full board is filled at random, then cells are blanked in random order while the solution
stays the only one. Training shows symmetric forms of its boards. No board of validation or test is symmetric to one of
training; on boards of 9 × 9 cells, not even the solutions are.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import ClassVar

from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.tasks.boards import Board
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.reports import Reports
from universal_transformer.tasks.sides.board import SHAPES, BoardSide, Cells
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import NumberOf, Positive, check

GIVENS: dict[BoardSide, tuple[int, int]] = {4: (4, 8), 6: (10, 16), 9: (30, 42)}
"""Fewest and most given cells by default."""
FEWEST: dict[BoardSide, int] = {4: 4, 6: 8, 9: 22}
"""Boards of fewer given cells have several solutions, or (9) are too rare to be found at random."""
MOST_TRIES: dict[BoardSide, int] = {4: 20_000, 6: 20_000, 9: 1_000_000}
"""Boards that are drawn for one of a part before it is taken to have no further one. Of 6 × 6 cells with 8 given, the
rarest, one of 600 is of a part."""
TEST, VALIDATION = (0,), (1,)
TRAINING = (2, 3)
"""Which boards belong to a part (`BoardShape.part`)."""


@dataclass(frozen=True, kw_only=True)
class SudokuData:
    """Generated boards with one solution each."""

    sides: ClassVar[Sides] = (Cells, Cells)
    side: BoardSide = 4
    """Rows and columns of a board: 4 (boxes of 2 × 2), 6 (2 × 3) or 9 (3 × 3)."""
    givens: tuple[NumberOf, NumberOf] = (0, 0)
    """Fewest and most given cells; each number is equally frequent. 0 0: 4 to 8, 10 to 16, or 30 to 42."""
    train_boards: Positive = 3000
    """Boards of training, drawn when training starts."""
    train_examples: Positive = 100_000
    """Examples in an epoch: symmetric forms of the boards of training."""
    validation_boards: Positive = 200
    """Boards of validation."""
    test_boards: Positive = 500
    """Boards of the test; each number of given cells is a group."""
    seed: NumberOf = 0
    """Chooses the boards: the same seed gives the same boards."""

    def __post_init__(self) -> None:
        check(self, field="data")
        least, most = self.numbers
        if not FEWEST[self.side] <= least <= most < self.side**2:
            raise UserError(
                f"data.givens={least} {most}: expected the fewest and the most given cells of a board of side "
                f"{self.side}, from {FEWEST[self.side]} to {self.side**2 - 1}"
            )

    @property
    def numbers(self) -> tuple[int, int]:
        return self.givens if any(self.givens) else GIVENS[self.side]

    def load(self, saved: Saved | None = None) -> Task:
        """Draw the boards of validation and test; those of training are drawn when they are needed."""
        del saved  # the codec follows from the fields
        held_out = self._boards("validation", VALIDATION, self.validation_boards)
        test = self._boards("test", TEST, self.test_boards)
        return Task(
            name=f"sudoku {self.side} × {self.side}",
            codec=Codec.shared(self._cells),
            train=LazyExamples(self._training_example, count=self.train_examples),
            validation=[self._example(board) for board in held_out],
            test={"test": [self._example(board, group=f"{board.givens} givens") for board in test]},
            metric="positions",
        )

    def _boards(self, name: str, parts: Collection[int], count: int) -> list[Board]:
        """Draw different boards of a part, with each number of given cells in turn; UserError if there are too few."""
        draw, (least, most) = Random(f"sudoku {self.side} {self.seed} {name}"), self.numbers
        found: dict[Board, None] = {}
        misses, reports = 0, Reports()
        while len(found) < count:
            if reports.due():
                reports.say(f"sudoku {self.side} × {self.side}: {len(found):,} of {count:,} boards drawn for {name}")
            givens = least + len(found) % (most - least + 1)
            board = self._board(givens, parts, draw)
            if board and board not in found:
                found[board], misses = None, 0
            elif (misses := misses + 1) == MOST_TRIES[self.side]:
                raise UserError(
                    f"found {len(found):,} of {count:,} different boards for {name}, and no further one with {givens} "
                    "given cells; ask for fewer boards, or for other numbers of given cells (data.givens)"
                )
        return list(found)

    def _board(self, givens: int, parts: Collection[int], draw: Random) -> Board | None:
        """Draw a board; None if it is of another part, or its solution is not the only one with so few cells given."""
        grid = SHAPES[self.side]
        solution = grid.solved(draw)
        if grid.by_solution and grid.part(Board(solution, solution)) not in parts:
            return None
        board = grid.dig(solution, givens=givens, draw=draw)
        return board if board and grid.part(board) in parts else None

    @cached_property
    def _training_boards(self) -> list[Board]:
        return self._boards("training", TRAINING, self.train_boards)

    def _training_example(self, index: int) -> Example:
        draw, boards = Random(f"sudoku {self.seed} {index}"), self._training_boards
        return self._example(SHAPES[self.side].symmetric(boards[index % len(boards)], draw))

    def _example(self, board: Board, *, group: str = "") -> Example:
        target = tuple([0 if given else digit for given, digit in zip(board.cells, board.solution, strict=True)])
        return Example(source=self._cells.ids(board.cells), target=target, group=group)

    @cached_property
    def _cells(self) -> Cells:
        return Cells(side=self.side)
