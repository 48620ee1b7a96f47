"""Boards have one solution, and no symmetry turns a board of one part into one of another."""

import random
from itertools import permutations, product

import pytest

from universal_transformer.tasks import boards
from universal_transformer.tasks.boards import Board, BoardShape

SHAPES = [BoardShape(2, 2), BoardShape(2, 3), BoardShape(3, 3)]
GIVENS = {4: 5, 6: 12, 9: 34}
ids = [f"{grid.side} x {grid.side}" for grid in SHAPES]


def drawn(grid, *, count, seed=0):
    """Boards, and the generator that drew them."""
    draw, found = random.Random(seed), []
    while len(found) < count:
        if board := grid.dig(grid.solved(draw), givens=GIVENS[grid.side], draw=draw):
            found.append(board)
    return found, draw


def fits(grid, cells):
    """Whether no row, column or box has a digit twice, looked up cell by cell."""
    side = grid.side
    for one, other in product(range(side**2), repeat=2):
        (row, column), (row_2, column_2) = divmod(one, side), divmod(other, side)
        box = (row // grid.box_rows, column // grid.box_columns)
        same = row == row_2 or column == column_2 or box == (row_2 // grid.box_rows, column_2 // grid.box_columns)
        if same and one != other and cells[one] and cells[one] == cells[other]:
            return False
    return True


def all_solutions(grid, cells):
    """By trying every digit in every blank cell in order."""
    if not fits(grid, cells):
        return []
    if 0 not in cells:
        return [tuple(cells)]
    place = cells.index(0)
    tried = ([*cells[:place], digit, *cells[place + 1 :]] for digit in range(1, grid.side + 1))
    return [found for one in tried for found in all_solutions(grid, one)]


@pytest.mark.parametrize("grid", SHAPES, ids=ids)
def test_a_board_has_as_many_givens_as_asked_for_and_one_solution(grid):
    for board in drawn(grid, count=5)[0]:
        assert board.givens == GIVENS[grid.side]
        assert all(digit in (0, truth) for digit, truth in zip(board.cells, board.solution, strict=True))
        assert fits(grid, board.solution)
        assert grid.solutions(board.cells) == [board.solution]


def test_the_solver_finds_the_solutions_of_a_naive_search():
    grid, draw = SHAPES[0], random.Random(3)
    for _ in range(20):
        solution = grid.solved(draw)
        cells = [digit if draw.random() < 0.3 else 0 for digit in solution]
        expected = all_solutions(grid, cells)
        assert sorted(grid.solutions(cells, limit=1000)) == sorted(expected)
        assert len(grid.solutions(cells)) == min(2, len(expected))
    assert len(grid.solutions([0] * 16, limit=1000)) == 288
    assert grid.solutions([1, 1, *[0] * 14]) == []
    assert grid.unsolvable([1, 2, 3, 0, 0, 0, 4, 0, *[0] * 8])
    assert not grid.unsolvable([0] * 16)


def test_a_search_for_a_contradiction_ends():
    """A board without a solution, for which a depth-first search takes minutes: no contradiction is found."""
    board = ".....5.8. ...6.1.43 ......... .1.5..... ...1.6... 3.......5 53.....61 ........4 ........."
    cells = [int(cell) for cell in board.replace(" ", "").replace(".", "0")]
    assert not BoardShape(3, 3).unsolvable(cells)


def test_a_contradiction_that_needs_some_hundred_cells_is_found(monkeypatch):
    board = "004000008003000000810079400481900020000540000067000540000050003500000004048000051"
    cells = [int(cell) for cell in board]
    assert BoardShape(3, 3).unsolvable(cells)
    monkeypatch.setattr(boards, "MOST_FILLED", 300)
    assert not BoardShape(3, 3).unsolvable(cells)


def test_digits_are_not_taken_away_while_another_solution_appears():
    """From a board of four givens that is still unique, none can be taken away: fewer have no single solution."""
    grid, draw = SHAPES[0], random.Random(0)
    assert all(grid.dig(grid.solved(draw), givens=3, draw=draw) is None for _ in range(50))


@pytest.mark.parametrize("grid", SHAPES, ids=ids)
def test_symmetric_boards_are_boards_of_the_same_part(grid):
    boards, draw = drawn(grid, count=8)
    parts = [grid.part(board) for board in boards]
    assert len(set(parts)) > 1
    for board, part in zip(boards, parts, strict=True):
        forms = [grid.symmetric(board, draw) for _ in range(6)]
        assert len(set(forms)) == 6
        for form in forms:
            assert form.givens == board.givens
            assert grid.solutions(form.cells) == [form.solution]
            assert grid.part(form) == part


def test_every_symmetry_of_a_small_board_is_drawn():
    """24 digits, 8 orders of rows, 8 of columns, and rows for columns."""
    grid = SHAPES[0]
    (board,), draw = drawn(grid, count=1)
    naive = set()
    orders = [order for order in permutations(range(4)) if {order[0] // 2, order[1] // 2} in ({0}, {1})]
    for rows, columns, turned in product(orders, orders, (False, True)):
        places = [4 * row + column for row in rows for column in columns]
        places = [place % 4 * 4 + place // 4 for place in places] if turned else places
        for digits in permutations(range(1, 5)):
            named = (0, *digits)
            naive.add(Board(*(tuple(named[cells[place]] for place in places) for cells in board)))
    assert {grid.symmetric(board, draw) for _ in range(25 * len(naive))} == naive
    least = min(bytes(2 * a + (b > 0) for a, b in zip(one.solution, one.cells, strict=True)) for one in naive)
    assert len({grid.canonical(one) for one in list(naive)[:100]}) == 1
    assert grid.canonical(board)[:4] >= least[:4]


def test_solutions_of_large_boards_are_nearly_always_told_apart():
    grid, draw = SHAPES[2], random.Random(0)
    signatures = {repr(grid.signature(grid.solved(draw))) for _ in range(60)}
    assert len(signatures) == 60
    solution = grid.solved(draw)
    cells = tuple(digit if place % 2 else 0 for place, digit in enumerate(solution))
    assert grid.part(Board(cells, solution)) == grid.part(Board(solution, solution))
