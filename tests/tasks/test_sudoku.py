"""Sudoku as a task: parts without symmetric boards in common, lines of digits, and clear words for wrong ones."""

import random
from collections import Counter

import pytest

from universal_transformer.cli import main
from universal_transformer.errors import UserError
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.tasks import reports
from universal_transformer.tasks.boards import Board
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.sides.board import SHAPES, Cells
from universal_transformer.tasks.sudoku import MOST_TRIES, SudokuData
from universal_transformer.tasks.task import Task

SIDES = (4, 6, 9)
FEW = {"train_boards": 6, "train_examples": 18, "validation_boards": 4, "test_boards": 6}


def boards(examples):
    """The boards and solutions of examples."""
    found = []
    for example in examples:
        cells = tuple(index - 1 for index in example.source)
        found.append(Board(cells, tuple(a + b for a, b in zip(cells, example.target, strict=True))))
    return found


@pytest.mark.parametrize("side", SIDES)
def test_parts_share_no_board_whatever_the_symmetry(side):
    task, grid = SudokuData(side=side, **FEW).load(), SHAPES[side]
    parts = {"train": task.train, "validation": task.validation, "test": task.test["test"]}
    assert {name: len(examples) for name, examples in parts.items()} == {"train": 18, "validation": 4, "test": 6}

    def key(board):
        return repr(grid.signature(board.solution)) if side == 9 else grid.canonical(board)

    keys = {name: {key(board) for board in boards(examples)} for name, examples in parts.items()}
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["validation"]
    assert not keys["validation"] & keys["test"]
    for board in boards(parts["train"]):
        assert grid.solutions(board.cells) == [board.solution]
    assert len(set(boards(parts["train"]))) == 18, "six boards in three forms each"
    assert len(keys["train"]) <= 6


def test_the_same_seed_gives_the_same_boards_and_another_seed_others():
    first, again, other = (SudokuData(seed=seed, **FEW).load() for seed in (0, 0, 1))
    for one, two, three in ((task.train[5], task.test["test"][3], task.validation[1]) for task in (first,)):
        assert (one, two, three) == (again.train[5], again.test["test"][3], again.validation[1])
        assert two != other.test["test"][3]


def test_a_reference_is_the_whole_board_whatever_the_given_cells_are_taken_for():
    task = SudokuData(side=4, **FEW).load()
    side = task.codec.target
    for example, board in zip(task.test["test"], boards(task.test["test"]), strict=True):
        line = side.input_text(example.source)
        assert side.completed(side.render(example.target), line) == side.render(board.solution)
        assert side.completed("1" * 16, f" {line.replace('.', '0')}\n") == line.replace(".", "1")


def test_given_cells_have_no_class_and_their_number_is_the_group():
    task = SudokuData(side=4, givens=(5, 7), **FEW).load()
    for example in task.test["test"]:
        given = [index > 1 for index in example.source]
        assert [target == 0 for target in example.target] == given
        assert example.group == f"{sum(given)} givens"
    assert Counter(example.group for example in task.test["test"]) == {"5 givens": 2, "6 givens": 2, "7 givens": 2}
    config = task.configure(ModelConfig(architecture="tagger"))
    assert (config.vocabulary.size, config.vocabulary.num_classes) == (6, 5)
    assert (config.coordinates.box_rows, config.coordinates.box_columns) == (2, 2)
    assert config.generation.max_new_tokens is None


@pytest.mark.parametrize("givens", [(3, 6), (6, 5), (5, 16)])
def test_numbers_of_givens_that_no_board_has_are_refused(givens):
    with pytest.raises(UserError, match=r"data\.givens=.*from 4 to 15"):
        SudokuData(side=4, givens=givens)


def test_boards_that_a_part_does_not_have_are_asked_for_in_vain(monkeypatch):
    monkeypatch.setitem(MOST_TRIES, 4, 500)
    said = "^found 0 of 4 different boards for validation, and no further one with 15 given cells; ask for fewer"
    with pytest.raises(UserError, match=said):
        SudokuData(side=4, givens=(15, 15), validation_boards=4).load()


LINE = "1.3..412........"


def test_a_line_is_read_and_written_again(tmp_path):
    codec = Codec.shared(Cells(side=4))
    lines = [(1, f" {LINE}\n"), (2, ""), (3, LINE.replace(".", "0"))]
    first, second = codec.read(lines, name="boards")
    assert first == second
    assert codec.render(first.target) == LINE
    assert codec.words(first) == list(LINE)
    assert codec.render(3) == "3"
    codec.save(tmp_path)
    assert Codec.load(tmp_path) == codec


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (LINE[:-1], "boards:7: a board of 15 cells; expected 16, row after row"),
        (LINE + "." * 65, "boards:7: a board of 81 cells; expected 16"),
        (LINE + "9" * 65, "boards:7: a board of 81 cells; expected 16"),
        (" ".join(LINE), "boards:7: found ' '; expected digits 1 to 4, and 0 or . as blank"),
        ("5" + LINE[1:], "boards:7: found '5'; expected digits 1 to 4, and 0 or . as blank"),
        ("1.31" + LINE[4:], "boards:7: the digit 1 twice in row 1; expected once"),
        ("1...1...........", "boards:7: the digit 1 twice in column 1; expected once"),
        ("1....1..........", "boards:7: the digit 1 twice in box 1; expected once"),
        ("123...4.........", "boards:7: the given cells contradict each other: this board has no solution"),
    ],
)
def test_boards_that_are_none_are_refused_in_one_line(line, message):
    with pytest.raises(UserError) as error:
        list(Codec.shared(Cells(side=4)).read([(7, line)], name="boards"))
    assert str(error.value).startswith(message)


def test_what_is_wrong_with_an_answer():
    codec = Codec.shared(Cells(side=4))
    solved = "1234341221434321"
    assert codec.source.fault(solved) == ""
    assert codec.source.fault("." + solved[1:]) == "a board with 1 blank cells"
    assert (
        codec.source.fault("2" + solved[1:]) == "a board that is not solved: the digit 2 twice in row 1; expected once"
    )


def test_a_small_run_is_trained_scored_with_more_steps_and_asked(tmp_path, capsys):
    run = tmp_path / "run"
    data = ["--train-boards", "20", "--train-examples", "60", "--validation-boards", "4", "--test-boards", "6"]
    sizes = ["--width", "8", "--filter-width", "8", "--num-heads", "1", "--model.depth.max-steps", "2"]
    training = ["--training.minutes", "None", "--max-updates", "3", "--validate-every", "2", "--quiet"]
    assert main(["train", "sudoku-4", "--run", str(run), *data, *sizes, *training]) == 0
    assert main(["evaluate", str(run), "--max-steps", "3"]) == 0
    shown = capsys.readouterr().out
    assert "sequence accuracy  baseline  position accuracy" in shown
    assert "8 givens" in shown
    (tmp_path / "lines").write_text(f"{LINE}\n{LINE[1:]}\n")
    assert main(["predict", str(run), str(tmp_path / "lines")]) == 2
    found = capsys.readouterr()
    first, second = found.out.splitlines()
    assert [digit for digit, given in zip(first, LINE, strict=True) if given != "."] == list("13412")
    assert second == ""
    assert "lines:2: a board of 15 cells; expected 16" in found.err
    assert "warning: output line 1: a board " in found.err, "two updates solve no board"
    # options may stand before the file too
    assert main(["predict", str(run), "--max-steps", "2", str(tmp_path / "lines")]) == 2
    assert capsys.readouterr().out.splitlines()[0] == first


def test_the_oracle_of_disjoint_parts_sees_a_board_in_two_parts():
    grid, draw = SHAPES[4], random.Random(0)
    task = SudokuData(**FEW).load()
    assert isinstance(task, Task)
    board = boards(task.test["test"])[0]
    assert grid.canonical(grid.symmetric(board, draw)) == grid.canonical(board)


def test_parts_stay_apart_where_few_boards_differ():
    """Some 500 boards of 4 × 4 cells are different up to symmetry, so that parts that overlap share some."""
    grid = SHAPES[4]
    task = SudokuData(train_boards=150, train_examples=150, validation_boards=80, test_boards=80).load()
    parts = [task.train, task.validation, task.test["test"]]
    keys = [{grid.canonical(board) for board in boards(examples)} for examples in parts]
    assert not keys[0] & keys[1]
    assert not keys[0] & keys[2]
    assert not keys[1] & keys[2]


def test_boards_that_take_long_to_draw_are_reported(capsys, monkeypatch):
    monkeypatch.setattr(reports, "REPORT_SECONDS", 0.0)
    SudokuData(test_boards=3, validation_boards=2).load()
    assert "sudoku 4 × 4: 2 of 3 boards drawn for test" in capsys.readouterr().err
    monkeypatch.setattr(reports, "REPORT_SECONDS", 10.0)
    SudokuData(test_boards=3, validation_boards=2).load()
    assert capsys.readouterr().err == ""
