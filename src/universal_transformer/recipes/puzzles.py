"""Sudoku boards of three sizes: one class a cell, by steps that all have a loss."""

from universal_transformer.recipes.start import Changes, constant_rate, named, start
from universal_transformer.tasks import SudokuData
from universal_transformer.training.run_config import RunConfig


def _boards(side: int, count: int) -> Changes:
    return {
        "model.architecture": "tagger",
        "model.coordinates.position": "grid",
        "model.coordinates.step": "none",
        "model.step.dropout": 0.0,  # no example occurs twice
        "training.batch_tokens": count * side**2,
        "training.step_loss": "mean",
    }


def sudoku_4() -> RunConfig:
    """Sudoku of 4 × 4 cells, 4 to 8 of them given."""
    changes = {
        "model.sizes.width": 64,
        "model.sizes.filter_width": 256,
        "model.depth.max_steps": 8,
        "training.max_updates": 1000,
        "training.learning_rate": 3e-3,
    }
    return start("sudoku-4", SudokuData(side=4), _boards(4, 64), changes)


def sudoku_6() -> RunConfig:
    """Sudoku of 6 × 6 cells (boxes of 2 × 3), 10 to 16 of them given."""
    # a third of the wrong boards that a cosine to 0 leaves after 1,500 updates: notebook/README.md
    changes = {"model.depth.max_steps": 16, "training.max_updates": 4000, **constant_rate()}
    return start("sudoku-6", SudokuData(side=6), _boards(6, 32), changes)


def sudoku_9_easy() -> RunConfig:
    """Sudoku of 9 × 9 cells, 36 to 76 of them given: the first stage, from which `sudoku-9` starts."""
    changes = {"model.depth.max_steps": 6, "training.max_updates": 2000, "training.schedule": "constant"}
    return start("sudoku-9-easy", SudokuData(side=9, givens=(36, 76)), _boards(9, 32), changes)


def sudoku_9() -> RunConfig:
    """Sudoku of 9 × 9 cells, 30 to 42 of them given; start from the first stage: --from RUN of sudoku-9-easy."""
    # without the first stage 53 % of the blank cells are wrong after 3,500 updates: notebook/README.md
    changes = {"model.depth.max_steps": 16, "training.max_updates": 5000, "training.learning_rate": 1.5e-3}
    return start("sudoku-9", SudokuData(side=9), _boards(9, 32), changes)


MAIN = named(sudoku_4, sudoku_6, sudoku_9_easy, sudoku_9)
