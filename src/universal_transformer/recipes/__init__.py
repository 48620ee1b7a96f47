"""Recipes: plain functions, each of which returns the whole configuration of a run.

>>> from universal_transformer.recipes import RECIPES
>>> config = RECIPES["stories"]()

A base is its differences from a common start (`start`). Variants are made from bases (`variants`).
"""

from collections.abc import Sequence

from universal_transformer.members import Members
from universal_transformer.recipes import digit_problems, puzzles, questions, senses, sequences, users_files
from universal_transformer.recipes.start import Recipe as Recipe
from universal_transformer.recipes.variants import changed, variants

MAIN: Members[Recipe] = Members(
    {
        **questions.MAIN,
        **digit_problems.MAIN,
        **puzzles.MAIN,
        **users_files.MAIN,
        **sequences.MAIN,
        **senses.MAIN,
    }
)
"""The recipes to start with."""
_DIGITS = ("copy", "reverse", "addition")
BASES_OF: dict[str, Sequence[str]] = {
    "lstm": _DIGITS,
    "transformer": (*_DIGITS, "pictures"),
    "transformer-small": (*_DIGITS, "pictures"),
    "ut-halting": (*_DIGITS, "pictures"),
    "ut-halting-2x": _DIGITS,
    "ut-post-norm": _DIGITS,
    "neural-gpu": _DIGITS,
}
"""Variant -> the bases that have it."""

_BASES = {**MAIN.data, **digit_problems.STUDIED}
RECIPES: Members[Recipe] = Members(
    {
        **_BASES,
        **variants(_BASES, BASES_OF),
        **changed(
            {**digit_problems.MAIN, **digit_problems.STUDIED},
            digit_problems.distance_positions,
            suffix="distance-positions",
            title="distance positions",
        ),
    }
)
"""Every recipe by its name on the command line; the first line of its docstring is its summary."""
