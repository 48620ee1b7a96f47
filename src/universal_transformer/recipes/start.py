"""The common start: a recipe is a name, its data, and its differences from this model and this training."""

from collections.abc import Callable, Mapping

from universal_transformer.models.components import DepthConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.nn.step_config import Sizes, StepConfig
from universal_transformer.tasks import TaskData
from universal_transformer.training.run_config import RunConfig, TrainingConfig
from universal_transformer.typed import replaced

Recipe = Callable[[], RunConfig]
Changes = Mapping[str, object]
"""Path of a field, as on the command line (``training.max_updates``) -> its value."""

MODEL = ModelConfig(
    sizes=Sizes(width=128, filter_width=512, num_heads=4),
    depth=DepthConfig(max_steps=4),
    step=StepConfig(norm="pre", dropout=0.1),  # post-norm learns more slowly: notebook/README.md
)
TRAINING = TrainingConfig(
    minutes=10.0,
    batch_tokens=1024,
    learning_rate=2e-3,
    schedule="cosine",
    warmup_updates=200,
    validate_every=250,
    save_minutes=1.0,
)


def start(name: str, data: TaskData, *differences: Changes) -> RunConfig:
    """The configuration that differs from the start in some fields; later differences win.

    A number of updates replaces the minutes.
    """
    changes = {path: value for difference in differences for path, value in difference.items()}
    if "training.max_updates" in changes:
        changes = {"training.minutes": None, **changes}
    return replaced(RunConfig(recipe=name, data=data, model=MODEL, training=TRAINING), changes)


def constant_rate() -> Changes:
    """A constant rate and a running mean of the weights, in place of a cosine to 0."""
    return {"training.schedule": "constant", "training.ema_decay": 0.999}


def named(*recipes: Recipe) -> dict[str, Recipe]:
    """Return functions by their names on the command line: ``sudoku_4`` is sudoku-4."""
    return {recipe.__name__.replace("_", "-"): recipe for recipe in recipes}


def family(make: Callable[[str], RunConfig], summaries: Mapping[str, str]) -> dict[str, Recipe]:
    def member(name: str, summary: str) -> Recipe:
        def recipe() -> RunConfig:
            return make(name)

        recipe.__doc__ = summary
        return recipe

    return {name: member(name, summary) for name, summary in summaries.items()}
