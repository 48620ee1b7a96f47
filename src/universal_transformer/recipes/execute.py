"""Tables 5 and 6: learning to execute. One recipe with the problem as a field, and one for each column."""

from __future__ import annotations

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.config import CoordinatesConfig, DepthConfig, Sizes, StepConfig
from universal_transformer.recipes.variants import Recipe
from universal_transformer.tasks import LearningToExecuteData
from universal_transformer.tasks.algorithmic import FIRST_SYMBOL
from universal_transformer.tasks.learning_to_execute import ExecuteProblem
from universal_transformer.tasks.programs import EXPRESSION_SYMBOLS, KINDS
from universal_transformer.training.config import RunConfig, TrainingConfig
from universal_transformer.typed import replaced


def lte() -> RunConfig:
    """Learning to execute: --problem program, control, addition, copy, double or reverse; --form lines for Python."""
    return _recipe("lte", problem="program", updates=3000)


def lte_copy() -> RunConfig:
    """Repeat a number of up to 55 digits (table 5)."""
    return _recipe("lte-copy", problem="copy", updates=600)


def lte_double() -> RunConfig:
    """Repeat a number of up to 55 digits twice (table 5)."""
    return _recipe("lte-double", problem="double", updates=600)


def lte_reverse() -> RunConfig:
    """Reverse a number of up to 55 digits (table 5)."""
    return _recipe("lte-reverse", problem="reverse", updates=600)


def lte_program() -> RunConfig:
    """Run programs of sums, products, conditionals and loops: literals of up to 5 digits, nesting 2 (table 6)."""
    return _recipe("lte-program", problem="program", updates=3000)


def lte_control() -> RunConfig:
    """Run programs of conditionals and loops: literals of up to 5 digits, nesting 2 (table 6)."""
    return _recipe("lte-control", problem="control", updates=3000)


def lte_addition() -> RunConfig:
    """Run programs of additions: literals of up to 5 digits, nesting 2 (table 6)."""
    return _recipe("lte-addition", problem="addition", updates=3000)


def distance_positions(base: Recipe) -> Recipe:
    """Return the recipe with positions encoded as distances, in attention to the source too (docs/model.md, D13).

    To reverse a number, half of the heads count from the end of the source. To double it, the decoder reads the symbol
    before each position, because the second copy is found by its digits: its distance depends on the length. Programs
    have the settings with which numbers of 400 digits are added (table 4): last digit first, and equal places at equal
    positions.
    """

    def recipe() -> RunConfig:
        config = base()
        assert isinstance(config.data, LearningToExecuteData)
        return replaced(
            config,
            {
                "recipe": f"{config.recipe}-distance-positions",
                "model.coordinates.position": "rotary",
                "model.coordinates.offsets": "none",
                "model.coordinates.from_end": config.data.problem == "reverse",
                "model.attention.rotary_source": True,
            }
            | (_OF_DOUBLE if config.data.problem == "double" else {})
            | (_OF_NUMBERS if config.data.runs else {})
            | (_OF_CONTROL if config.data.problem in ("program", "control") else {}),
        )

    recipe.__doc__ = f"{(base.__doc__ or '').rstrip('.')}: distance positions."
    return recipe


_OF_DOUBLE = {
    "model.depth.max_steps": 4,
    "model.attention.source_sink": True,
    "model.transition.kind": "separable_convolution",
    "training.max_updates": 1500,
}
_OF_NUMBERS = {
    "data.least_significant_first": True,
    "model.sizes.width": 64,
    "model.sizes.filter_width": 256,
    "model.depth.max_steps": 3,
    "model.vocabulary.separator_id": FIRST_SYMBOL + EXPRESSION_SYMBOLS.index("+"),
    "model.vocabulary.last_separator_id": FIRST_SYMBOL + len(EXPRESSION_SYMBOLS) - 1,
    "model.attention.source_sink": True,
    "model.attention.bias": True,
    "model.transition.kind": "separable_convolution",  # reads the position before, where the carry comes from
    "training.learning_rate": 3e-3,
    "training.max_updates": 4500,
}
_OF_CONTROL = {
    "model.depth.max_steps": 4,
    "training.batch_tokens": 4096,  # sees 1.6 times as many examples in a time as batches of 1,024
    "training.max_updates": 3000,
}


def _recipe(name: str, *, problem: ExecuteProblem, updates: int) -> RunConfig:
    return RunConfig(
        recipe=name,
        data=LearningToExecuteData(problem=problem),
        model=ModelConfig(
            sizes=Sizes(width=128, filter_width=512, num_heads=4),
            depth=DepthConfig(max_steps=6),
            coordinates=CoordinatesConfig(
                # programs are short and have few lengths: offsets only slow training down (notebook/README.md)
                offsets="none" if problem in KINDS else "random",
                max_positions=128,  # the longest target has 111; a wider range trains more slowly: notebook/README.md
            ),
            step=StepConfig(norm="pre", dropout=0.0),  # no example occurs twice
        ),
        training=TrainingConfig(
            max_updates=updates,
            batch_tokens=1024,  # in the first minutes more updates help more than larger ones
            learning_rate=2e-3,
            schedule="cosine",
            warmup_updates=100,
            ponder_weight=0.001,
            validate_every=500,
            save_minutes=1.0,
            precision="bfloat16",
        ),
    )
