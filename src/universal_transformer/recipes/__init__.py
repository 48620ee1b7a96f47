"""Recipes: plain functions, each of which returns the whole configuration of a run.

>>> from universal_transformer.recipes import RECIPES
>>> config = RECIPES["stories"]()
"""

from __future__ import annotations

from universal_transformer.recipes import depth, table2, table3, table4, table5, table7
from universal_transformer.recipes.algorithmic import addition, copy, reverse
from universal_transformer.recipes.execute import lte
from universal_transformer.recipes.facts import babi, babi_1k_joint, babi_10k_joint, stories
from universal_transformer.recipes.files import labelled, pairs, text
from universal_transformer.recipes.language import agreement, lambada, lambada_reading
from universal_transformer.recipes.translation import multi30k
from universal_transformer.recipes.variants import Recipe, by_recipe_name

MAIN: dict[str, Recipe] = {
    "stories": stories,
    "babi": babi,
    "babi-10k-joint": babi_10k_joint,
    "babi-1k-joint": babi_1k_joint,
    "copy": copy,
    "reverse": reverse,
    "addition": addition,
    "lte": lte,
    "pairs": pairs,
    "text": text,
    "labelled": labelled,
    "multi30k": multi30k,
    "agreement": agreement,
    "lambada": lambada,
    "lambada-reading": lambada_reading,
}
"""What one begins with."""

RECIPES: dict[str, Recipe] = {
    **MAIN,
    **by_recipe_name(table2.ROWS),
    **by_recipe_name(table3.ROWS),
    **by_recipe_name(table4.ROWS),
    **by_recipe_name(table5.TABLE5.rows),
    **by_recipe_name(table5.TABLE6.rows),
    **by_recipe_name(table7.ROWS),
    **by_recipe_name(depth.ROWS),
}
"""Every recipe by its name on the command line; the first line of its docstring is its summary."""

__all__ = ["MAIN", "RECIPES"]
