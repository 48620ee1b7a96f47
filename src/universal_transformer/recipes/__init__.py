"""Recipes: plain functions, each of which returns the whole configuration of a run.

>>> from universal_transformer.recipes import RECIPES
>>> config = RECIPES["stories"]()

A base is its differences from a common start (`start`). Variants are made from bases (`variants`).
"""

from __future__ import annotations

from collections.abc import Sequence

from universal_transformer.recipes import digit_problems, execute, puzzles, questions, senses, sequences, users_files
from universal_transformer.recipes.start import Recipe
from universal_transformer.recipes.variants import variant, variants

MAIN: dict[str, Recipe] = {
    **questions.MAIN,
    **digit_problems.MAIN,
    **execute.MAIN,
    **puzzles.MAIN,
    **users_files.MAIN,
    **sequences.MAIN,
    **senses.MAIN,
}
"""The recipes to start with."""
OF_TABLES: dict[str, Recipe] = {
    **digit_problems.OF_TABLES,
    **execute.OF_TABLES,
    **sequences.OF_TABLES,
    **questions.OF_TABLES,
}
"""More recipes: columns of tables, and studies."""

_DIGITS = ("copy", "reverse", "addition")
_EXECUTE = (*execute.OF_TABLES,)
_COMPARED = (*_DIGITS, *_EXECUTE, "multi30k")
BASES_OF: dict[str, Sequence[str]] = {
    "lstm": (*_DIGITS, *_EXECUTE),
    "transformer": (*_COMPARED, "pictures", "wmt14"),
    "transformer-small": (*_COMPARED, "pictures", "wmt14"),
    "ut-halting": (*_COMPARED, "pictures"),
    "ut-halting-2x": _COMPARED,
    "ut-post-norm": (*_COMPARED, "wmt14"),
    "neural-gpu": _DIGITS,
}
"""Variant -> the bases that have it."""
DISTANCES = {
    digit_problems.distance_positions: (*digit_problems.MAIN, *digit_problems.OF_TABLES),
    execute.distance_positions: _EXECUTE,
}
"""Ways to encode positions as distances -> their bases."""


_BASES = {**MAIN, **OF_TABLES}
RECIPES: dict[str, Recipe] = {
    **_BASES,
    **variants(_BASES, BASES_OF),
    **{
        f"{base}-distance-positions": variant(
            _BASES[base], change, suffix="distance-positions", title="distance positions"
        )
        for change, names in DISTANCES.items()
        for base in names
    },
}
"""Every recipe by its name on the command line; the first line of its docstring is its summary."""

__all__ = ["MAIN", "RECIPES", "Recipe"]
