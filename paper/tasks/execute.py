"""Tables 5 and 6: learning to execute. One recipe with the problem as a field, and one for each column."""

from __future__ import annotations

from paper.tasks.learning_to_execute import ExecuteProblem, LearningToExecuteData
from paper.tasks.programs import EXPRESSION_SYMBOLS
from universal_transformer.recipes.start import Changes, constant_rate, family, named, start
from universal_transformer.tasks.sides.listed import FIRST_SYMBOL
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced, typed

_SIX_STEPS = {
    "model.depth.max_steps": 6,
    "model.coordinates.max_positions": 128,  # the longest target has 111; a wider range trains more slowly
    "model.step.dropout": 0.0,  # no example occurs twice
    "training.warmup_updates": 100,
    "training.ponder_weight": 0.001,
    "training.validate_every": 500,
}
_NUMBERS = {
    **_SIX_STEPS,
    "model.coordinates.offsets": "random",
    "training.max_updates": 600,
    "training.precision": "bfloat16",
}
# a curriculum: longer programs come when the loss of the shorter ones is below the threshold; without it, sums are not
# learned. Loops need a higher one, and products, which are hardly learned, one higher still (notebook/programs.md)
_THRESHOLD = {"program": 1.0, "control": 0.4, "addition": 0.15}
# loops in loops begin to be learned in this way alone, and their loss falls with the rate (notebook/programs.md)
_ROUNDS = {"data.strategy": "rounds", "training.max_updates": 40_000, "training.schedule": "cosine"}
_PROGRAMS = {
    **_SIX_STEPS,
    **constant_rate(),
    # programs are short and have few lengths: offsets only slow training down (notebook/README.md)
    "model.coordinates.offsets": "none",
    "model.sizes.width": 64,
    "model.sizes.filter_width": 256,
    "training.batch_tokens": 2048,
    "training.max_updates": 20_000,
    "training.log_every": 50,
}


def lte() -> RunConfig:
    """Learning to execute programs (--form lines for Python); `lte-control`, `lte-copy`, … have the other problems."""
    return _of("lte", "program")


def _column(name: str) -> RunConfig:
    return _of(name, typed(name.removeprefix("lte-"), ExecuteProblem, where="problem"))


def _of(name: str, problem: ExecuteProblem) -> RunConfig:
    threshold = _THRESHOLD.get(problem)
    changes = _NUMBERS if threshold is None else {**_PROGRAMS, "training.curriculum": threshold}
    if problem == "control":
        changes = {**changes, **_ROUNDS}
    return start(name, LearningToExecuteData(problem=problem), changes)


MAIN = named(lte)
COLUMNS = family(
    _column,
    {
        "lte-copy": "Repeat a number of up to 55 digits (table 5).",
        "lte-double": "Repeat a number of up to 55 digits twice (table 5).",
        "lte-reverse": "Reverse a number of up to 55 digits (table 5).",
        "lte-program": "Run programs of sums, products, conditionals and loops: literals of up to 5 digits, nesting 2 "
        "(table 6).",
        "lte-control": "Run programs of conditionals and loops: literals of up to 5 digits, nesting 2 (table 6).",
        "lte-addition": "Run programs of additions: literals of up to 5 digits, nesting 2 (table 6).",
    },
)

_DISTANCES = {
    "model.coordinates.position": "rotary",
    "model.coordinates.offsets": "none",
    "model.attention.rotary_source": True,
}
_OF_PROBLEM: dict[str, Changes] = {
    "lte-reverse": {"model.coordinates.from_end": True},
    # the decoder reads the symbol before each position, because the second copy is found by its digits: its distance
    # depends on the length
    "lte-double": {
        "model.depth.max_steps": 4,
        "model.attention.source_sink": True,
        "model.transition.kind": "separable_convolution",
        "training.max_updates": 1500,
    },
}


_NO_DIGITS = tuple(FIRST_SYMBOL + place for place, one in enumerate(EXPRESSION_SYMBOLS) if not one.isdigit())


def restart(config: RunConfig) -> RunConfig:
    """Positions of the source begin again after each symbol that is no digit, and the transition is a convolution.

    Equal places of the numbers then have equal positions. In control longer programs are let in after half as many
    updates, loops of more rounds are not learned sooner (notebook/programs.md).
    """
    changes: dict[str, object] = {
        "model.vocabulary.separator_id": _NO_DIGITS,
        "model.transition.kind": "separable_convolution",
    }
    if config.recipe == "lte-control":
        changes["training.max_updates"] = 25_000
    return replaced(config, changes)


def distance_positions(config: RunConfig) -> RunConfig:
    """Positions encoded as distances, in attention to the source too (docs/model.md, D13).

    To reverse a number, half of the heads count from the end of the source.
    """
    return replaced(config, {**_DISTANCES, **_OF_PROBLEM.get(config.recipe, {})})
