"""What a table is: rows by name, each a recipe, and grids that show their results next to the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paper.printed import Cell
from paper.results import Figures, Result
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.recipes import RECIPES, Recipe
from universal_transformer.recipes.start import constant_rate
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from universal_transformer.models.model import Model
    from universal_transformer.tasks.task import Task

TITLES: dict[str, str] = {
    "lstm": "LSTM",
    "transformer": "Transformer",
    "transformer-small": "Transformer, as many parameters as the UT",
    "transformer-convolution": "Transformer, transition of separable convolutions",
    "transformer-restart": "Transformer, each number counted from its beginning",
    "ut": "Universal Transformer",
    "ut-from-end": "UT, the source counted from its end",
    "ut-restart": "UT, each number counted from its beginning",
    "ut-halting": "UT, dynamic halting",
    "ut-halting-2x": "UT, dynamic halting, cap of twice the depth",
    "ut-post-norm": "UT, post-norm with DeepNorm",
    "ut-convolution": "UT, transition of separable convolutions",
    "ut-convolution-restart": "UT, transition of separable convolutions, each number counted from its beginning",
    "ut-convolution-continued": "UT, separable convolutions, each number counted from its beginning, further updates "
    "with 9 steps and twice the width",
    "ut-printed": "UT, dynamic halting, the equations of version 1 (projections without a bias)",
    "neural-gpu": "Neural GPU",
    "distance-positions": "UT, distance positions",
}
"""Model of a row -> its title. "Transformer" has the width and the depth of the UT, and so equal compute."""

FIXED_LENGTH = "fixed_length"
"""The metric of tables 4 to 6."""
CHARACTERS = """
Character accuracy is the part of the places of a target that have the right symbol, the mean over the examples. What an
answer has after the length of its target is not counted, because a Neural GPU writes no more; `ut evaluate` counts it
as wrong."""
"""What this metric is, for the page of a table."""

LONG_MODELS = ("lstm", "transformer", "ut", "ut-halting")
"""The models that the paper compares, which tables 4 to 6 train to their end."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a grid: which rows give its figures, and which of their scores."""

    run: str = ""
    """First part of the names of its rows; the model is the second part."""
    metrics: tuple[str, ...] = ()
    """Scores of a cell, in the order of the paper's figures."""
    group: str = ""
    """Group of the test set, or test set. For a test set with groups, and if empty: the mean over the groups,
    weighted by their numbers of examples."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """End of the name of a group -> its share of the paper's test set, where ours has other shares: the weights of the
    mean over the groups that ours has, in the place of their numbers of examples."""
    num_tasks: int = 0
    """If not 0, groups are tasks: the mean is not weighted, and a cell needs this number of tasks."""
    chance: float = 0.0
    """The first score of a guess, where a high score is good."""
    supports: int = 0
    """If not 0, the cell shows the steps of positions in questions with this number of supporting facts."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Models × columns: the paper's figures, where it has any, and ours below them."""

    title: str
    models: Mapping[str, str]
    """Second part of the names of its rows (or the whole beginning, where columns have no `run`) -> title."""
    columns: Mapping[str, Column]
    """By title."""
    printed: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    """Model -> the paper's figures, one cell for each column."""
    source: str = ""
    """Where the paper prints them."""
    transposed: bool = False
    """Show one line for each column."""


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table of the paper, or one of this project: its rows, and its page as data."""

    name: str
    title: str
    """What it measures, in one line."""
    naming: str
    """How rows are named, such as COLUMN/MODEL/TASK."""
    rows: Mapping[str, Recipe]
    """Name of a row -> the configuration of its runs, with seed 0."""
    heading: str
    introduction: str
    """What the figures are, and how they were measured."""
    grids: Sequence[Grid]
    deviations: Sequence[str] = ()
    """Where the protocol of our runs differs from the paper's, one sentence each."""
    headline: str = ""
    """Group of the test set that summarises a run; empty: the mean over all groups."""
    beams: Mapping[str, int] = field(default_factory=dict)
    """First part of the names of rows -> sequences of the beam search that writes their output; others are greedy."""
    metric: str | None = None
    """Name of the metric of its rows, if not that of their tasks."""
    measure: Callable[[Model, Task], Figures] | None = None
    """How a trained model is measured, if not by the scores of its task on the test sets."""
    records: Mapping[str, str] = field(default_factory=dict)
    """Row -> the record, a file of results/runs, of a run that was trained in several stages; no recipe makes it."""
    figure: Callable[[Sequence[Result]], Figure | None] | None = None
    """What is plotted, if not learning curves."""


def titles(*models: str) -> dict[str, str]:
    """Return some models of rows with their titles."""
    return {model: TITLES[model] for model in models}


def recipe_rows(columns: Mapping[str, str], *, models: Iterable[str]) -> dict[str, Recipe]:
    """Return COLUMN/MODEL -> recipe; `columns` maps each column to the name of its recipe for the model "ut"."""
    models = list(models)
    return {
        f"{column}/{model}": RECIPES[base if model == "ut" else f"{base}-{model}"]
        for column, base in columns.items()
        for model in models
    }


PRINTED: Mapping[str, object] = {
    "model.step.norm": "post",
    "model.step.residual": "previous",
    "model.step.blocks": 1,
    "model.attention.scale": "width",
    "model.coordinates.position": "sinusoidal",
    "model.coordinates.step": "sinusoidal",
    "model.halting.output": "interpolate",
    "model.halting.state": "evolving",
    "model.halting.remainder_at_cap": False,
    "training.learning_rate": 5e-4,
    "training.warmup_updates": 1000,
}
"""The equations of version 1 and of the patent (projections without a bias: D4), halting as listing 2, the plain sum
before each LayerNorm, and the rate that this needs."""


def as_printed(recipe: Recipe) -> Recipe:
    """Return the recipe of a model that halts by adaptive computation time with `PRINTED`."""
    return lambda: replaced(recipe(), PRINTED)


def to_the_end(recipe: Recipe, *, steps: int | None = None) -> Recipe:
    """Return a recipe with 20,000 updates at a constant rate and a running mean of the weights.

    `steps` replaces the number of steps.
    """

    def longer() -> RunConfig:
        config = recipe()
        changes: dict[str, object] = {
            **constant_rate(),
            "training.max_updates": 20_000,
            "training.learning_rate": 1e-3,
            "training.validate_every": 1000,
            "training.precision": "float32",  # 16 bits are several times slower on a processor without them
        }
        if isinstance(config.model, ModelConfig) and steps is not None:
            changes["model.depth.max_steps"] = steps
        return replaced(config, changes)

    return longer
