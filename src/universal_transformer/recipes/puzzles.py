"""Sudoku boards of three sizes: one class a cell, by steps that all have a loss."""

from __future__ import annotations

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import CoordinatesConfig, DepthConfig, Sizes, StepConfig
from universal_transformer.tasks import SudokuData
from universal_transformer.tasks.sudoku import Side
from universal_transformer.training.config import RunConfig, TrainingConfig
from universal_transformer.typed import replaced


def sudoku_4() -> RunConfig:
    """Sudoku of 4 × 4 cells, 4 to 8 of them given."""
    return _recipe(4, width=64, max_steps=8, batch_boards=64, updates=1000, learning_rate=3e-3)


def sudoku_6() -> RunConfig:
    """Sudoku of 6 × 6 cells (boxes of 2 × 3), 10 to 16 of them given."""
    recipe = _recipe(6, width=128, max_steps=16, batch_boards=32, updates=4000, learning_rate=2e-3)
    # a third of the wrong boards that a cosine to 0 leaves after 1,500 updates: notebook/README.md
    return replaced(recipe, {"training.schedule": "constant", "training.ema_decay": 0.999})


def sudoku_9_easy() -> RunConfig:
    """Sudoku of 9 × 9 cells, 36 to 76 of them given: the first stage, from which `sudoku-9` starts."""
    recipe = _recipe(9, width=128, max_steps=6, batch_boards=32, updates=2000, learning_rate=2e-3)
    changes = {"recipe": "sudoku-9-easy", "data.givens": (36, 76), "training.schedule": "constant"}
    return replaced(recipe, changes)


def sudoku_9() -> RunConfig:
    """Sudoku of 9 × 9 cells, 30 to 42 of them given; start from the first stage: --from RUN of sudoku-9-easy."""
    # without the first stage 53 % of the blank cells are wrong after 3,500 updates: notebook/README.md
    return _recipe(9, width=128, max_steps=16, batch_boards=32, updates=5000, learning_rate=1.5e-3)


def _recipe(
    side: Side, *, width: int, max_steps: int, batch_boards: int, updates: int, learning_rate: float
) -> RunConfig:
    return RunConfig(
        recipe=f"sudoku-{side}",
        data=SudokuData(side=side),
        model=ModelConfig(
            architecture="tagger",
            sizes=Sizes(width=width, filter_width=4 * width, num_heads=4),
            coordinates=CoordinatesConfig(position="grid", step="none"),
            depth=DepthConfig(max_steps=max_steps),
            step=StepConfig(norm="pre", dropout=0.0),  # no example occurs twice
        ),
        training=TrainingConfig(
            minutes=0.0,
            max_updates=updates,
            batch_tokens=batch_boards * side**2,
            learning_rate=learning_rate,
            schedule="cosine",
            warmup_updates=200,
            step_loss="mean",
            validate_every=250,
            save_minutes=1.0,
        ),
    )
