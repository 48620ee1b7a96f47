"""Sudoku boards: solve one, draw one with a single solution, and distinguish boards that are not symmetric.

A board is a tuple of digits, row by row, with 0 for a blank cell. The symmetries of a board exchange digits, rows of a
band, bands, columns of a stack, stacks, and (where boxes are square) rows with columns.
"""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, islice, permutations, product
from random import Random
from typing import NamedTuple

import numpy as np

Cells = tuple[int, ...]

MOST_FILLED = 20_000
"""Cells that a search for a contradiction fills at most: less than 0.1 s for a board of 9 × 9 cells."""


class Board(NamedTuple):
    """A board and its only solution."""

    cells: Cells
    solution: Cells

    @property
    def givens(self) -> int:
        return sum(digit > 0 for digit in self.cells)


@dataclass(frozen=True)
class BoardShape:
    """The rows, columns and boxes of a board whose boxes have `box_rows` rows and `box_columns` columns."""

    box_rows: int
    box_columns: int

    @property
    def side(self) -> int:
        """Digits, rows, columns and boxes."""
        return self.box_rows * self.box_columns

    @cached_property
    def units(self) -> tuple[tuple[int, int, int], ...]:
        """Row, column and box of each cell; rows are numbered from 0, then columns, then boxes."""
        side, found = self.side, []
        for row, column in product(range(side), range(side)):
            box = row // self.box_rows * self.box_rows + column // self.box_columns
            found.append((row, side + column, 2 * side + box))
        return tuple(found)

    def free(self, cells: Sequence[int]) -> list[int] | None:
        """Return the digits that each unit lacks as bits (1 << digit); None if a unit has a digit twice."""
        free = [(2 << self.side) - 2] * (3 * self.side)
        for digit, units in zip(cells, self.units, strict=True):
            for unit in units if digit else ():
                if not free[unit] >> digit & 1:
                    return None
                free[unit] ^= 1 << digit
        return free

    def solutions(
        self, cells: Sequence[int], *, limit: int = 2, draw: Random | None = None, most_filled: int = sys.maxsize
    ) -> list[Cells]:
        """Return up to `limit` solutions; `draw` gives the order in which digits are tried.

        Of the blank cells, the one with the fewest candidates is filled first. A search that fills more than
        `most_filled` cells is given up with an error.
        """
        free = self.free(cells)
        if free is None:
            return []
        blanks = [place for place, digit in enumerate(cells) if not digit]
        return list(islice(self._filled(list(cells), blanks, free, draw, iter(range(most_filled))), limit))

    def _filled(
        self, cells: list[int], blanks: list[int], free: list[int], draw: Random | None, left: Iterator[int]
    ) -> Iterator[Cells]:
        """Fill the blank cell with the fewest candidates with each of them, then the others; yield each solution."""
        units, fewest, best, candidates = self.units, self.side + 1, -1, 0
        for index, place in enumerate(blanks):
            row, column, box = units[place]
            mask = free[row] & free[column] & free[box]
            if (count := mask.bit_count()) < fewest:
                fewest, best, candidates = count, index, mask
                if count <= 1:
                    break
        if best < 0:
            yield tuple(cells)
            return
        if next(left, None) is None:
            raise _TooLongError
        place = blanks.pop(best)
        digits = [digit for digit in range(1, self.side + 1) if candidates >> digit & 1]
        if draw is not None:
            draw.shuffle(digits)
        for digit in digits:
            for unit in units[place]:
                free[unit] ^= 1 << digit
            cells[place] = digit
            yield from self._filled(cells, blanks, free, draw, left)
            for unit in units[place]:
                free[unit] ^= 1 << digit
        cells[place] = 0
        blanks.insert(best, place)

    def unsolvable(self, cells: Sequence[int]) -> bool:
        """Return whether a search that fills at most `MOST_FILLED` cells shows that a board has no solution."""
        try:
            return not self.solutions(cells, limit=1, most_filled=MOST_FILLED)
        except _TooLongError:
            return False

    def solved(self, draw: Random) -> Cells:
        return self.solutions((0,) * self.side**2, limit=1, draw=draw)[0]

    def dig(self, solution: Cells, *, givens: int, draw: Random) -> Board | None:
        """Blank cells in random order while the solution stays the only one; None if more than `givens` remain."""
        cells, left = list(solution), len(solution)
        for place in draw.sample(range(left), left):
            if left == givens:
                break
            if not self._others(cells, place):
                cells[place] = 0
                left -= 1
        return Board(tuple(cells), solution) if left == givens else None

    def _others(self, cells: list[int], place: int) -> bool:
        """Whether a board with one solution has another one once the cell at `place` is blank."""
        blanked = list(cells)
        blanked[place] = 0
        free = self.free(blanked)
        assert free is not None
        row, column, box = self.units[place]
        others = free[row] & free[column] & free[box] ^ 1 << cells[place]
        return any(
            self.solutions([*cells[:place], other, *cells[place + 1 :]], limit=1)
            for other in range(1, self.side + 1)
            if others >> other & 1
        )

    @property
    def has_square_boxes(self) -> bool:
        return self.box_rows == self.box_columns

    def symmetric(self, board: Board, draw: Random) -> Board:
        """Return what a symmetry, drawn uniformly from all, makes of a board."""
        side = self.side
        digits = [0, *draw.sample(range(1, side + 1), side)]
        rows, columns = (_shuffled(side, each, draw) for each in (self.box_rows, self.box_columns))
        places = [row * side + column for row in rows for column in columns]
        if self.has_square_boxes and draw.random() < 0.5:
            places = [place % side * side + place // side for place in places]
        cells, solution = board
        return Board(
            tuple([digits[cells[place]] for place in places]), tuple([digits[solution[place]] for place in places])
        )

    def part(self, board: Board) -> int:
        """Return a number from 0 to 3 that is the same for all symmetric boards, and is spread evenly over others."""
        key = repr(self.signature(board.solution)).encode() if self.by_solution else self.canonical(board)
        return hashlib.sha256(key).digest()[0] % 4

    @property
    def by_solution(self) -> bool:
        """Whether two boards are distinguished by their solutions alone.

        There are 5,472,730,538 solutions of 9 × 9 cells that are not symmetric to each other, but 49 of 6 × 6 and 2 of
        4 × 4: there, the cells that are given count too.
        """
        return self.side > 6

    def canonical(self, board: Board) -> bytes:
        """Return the least of all symmetric boards: ``2 · digit + given`` of each cell, by 4 and 6 rows.

        The first row has the digits in order, so that at first those with the last given cells in it are chosen.
        """
        side, orders = self.side, _orders(self)
        given, solution = np.array(board.cells) > 0, np.array(board.solution)
        first = given[orders[:, :side]] @ (1 << np.arange(side)[::-1])
        chosen = orders[first == first.min()]
        solutions = solution[chosen]
        names = np.zeros((len(chosen), side + 1), dtype=np.uint8)
        np.put_along_axis(names, solutions[:, :side], np.arange(1, side + 1, dtype=np.uint8)[None], axis=1)
        return min(map(bytes, 2 * np.take_along_axis(names, solutions, axis=1) + given[chosen]))

    def signature(self, solution: Cells) -> tuple:
        """Return the cycle types of all pairs of rows and of columns, by band and stack.

        Rows a and b map digit a_i to digit b_i; the lengths of the cycles of this permutation change under no symmetry.
        """
        side = self.side
        rows = [solution[side * index : side * (index + 1)] for index in range(side)]
        sides = [_cycle_types(rows, self.box_rows), _cycle_types(list(zip(*rows, strict=True)), self.box_columns)]
        return tuple(sorted(sides) if self.has_square_boxes else sides)


def _shuffled(side: int, size: int, draw: Random) -> list[int]:
    """Return the numbers of the lines with the groups of `size` lines, and the lines in each, in random order."""
    groups = draw.sample(range(side // size), side // size)
    return [size * group + line for group in groups for line in draw.sample(range(size), size)]


@cache
def _orders(grid: BoardShape) -> np.ndarray:
    """Return the cells in each order that a symmetry gives them."""
    rows, columns = (np.array(list(_all_orders(grid.side, size))) for size in (grid.box_rows, grid.box_columns))
    places = rows[:, None, :, None] * grid.side + columns[None, :, None, :]
    found = [places.reshape(-1, grid.side**2)]
    if grid.has_square_boxes:
        found.append(places.swapaxes(2, 3).reshape(-1, grid.side**2))
    return np.concatenate(found)


def _all_orders(side: int, size: int) -> Iterator[list[int]]:
    """Yield every order of the lines that `_shuffled` can return."""
    for groups in permutations(range(side // size)):
        for lines in product(permutations(range(size)), repeat=side // size):
            yield [size * group + line for group, order in zip(groups, lines, strict=True) for line in order]


def _cycle_types(lines: Sequence[Cells], size: int) -> tuple:
    """Return the cycle types of pairs of lines, sorted, in each group of lines and between each two groups."""
    groups = range(len(lines) // size)
    types: dict[tuple[int, int], list[tuple[int, ...]]] = {
        pair: [] for pair in [*zip(groups, groups, strict=True), *combinations(groups, 2)]
    }
    for (first, one), (second, other) in combinations(enumerate(lines), 2):
        types[first // size, second // size].append(_cycle_type(one, other))
    within = sorted(sorted(types[group, group]) for group in groups)
    between = sorted(sorted(types[pair]) for pair in combinations(groups, 2))
    return within, between


def _cycle_type(one: Cells, other: Cells) -> tuple[int, ...]:
    following, lengths = dict(zip(one, other, strict=True)), []
    while following:
        start, _ = following.popitem()
        digit, length = other[one.index(start)], 1
        while digit != start:
            digit, length = following.pop(digit), length + 1
        lengths.append(length)
    return tuple(sorted(lengths))


class _TooLongError(Exception):
    """A search has filled as many cells as it may."""
