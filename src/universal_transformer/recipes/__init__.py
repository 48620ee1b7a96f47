"""Recipes: plain functions, each of which returns the whole configuration of a run.

>>> from universal_transformer.recipes import RECIPES
>>> config = RECIPES["stories"]()

A base is its differences from a common start (`start`). Variants are made from bases (`variants`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from universal_transformer.recipes import algorithmic, execute, facts, language, own_files, puzzles, senses, sequences
from universal_transformer.recipes.start import Recipe
from universal_transformer.recipes.variants import VARIANTS, variant

MAIN: dict[str, Recipe] = {
    "stories": facts.stories,
    "babi": facts.babi,
    "babi-10k-joint": facts.babi_10k_joint,
    "babi-1k-joint": facts.babi_1k_joint,
    "copy": algorithmic.copy,
    "reverse": algorithmic.reverse,
    "addition": algorithmic.addition,
    "parity": algorithmic.parity,
    "sorting": algorithmic.sorting,
    "multiplication": algorithmic.multiplication,
    "lte": execute.lte,
    "sudoku-4": puzzles.sudoku_4,
    "sudoku-6": puzzles.sudoku_6,
    "sudoku-9-easy": puzzles.sudoku_9_easy,
    "sudoku-9": puzzles.sudoku_9,
    "pairs": own_files.pairs,
    "text": own_files.text,
    "labelled": own_files.labelled,
    "tagged": own_files.tagged,
    "parsing": sequences.parsing,
    "summaries": sequences.summaries,
    "records": sequences.records,
    "speech": senses.speech,
    "voice": senses.voice,
    "multi30k": sequences.multi30k,
    "pictures": senses.pictures,
    "pictures-28": senses.pictures_28,
    "captions-digits": senses.captions_digits,
    "captions": senses.captions,
    "control-cartpole": senses.control_cartpole,
    "agreement": language.agreement,
    "lambada": language.lambada,
    "lambada-reading": language.lambada_reading,
}
"""The recipes to start with."""

OF_TABLES: dict[str, Recipe] = {
    "prefix-parity": algorithmic.prefix_parity,
    "lambada-ut-8": language.lambada_ut_8,
    "lambada-ut-9": language.lambada_ut_9,
    "lte-copy": execute.lte_copy,
    "lte-double": execute.lte_double,
    "lte-reverse": execute.lte_reverse,
    "lte-program": execute.lte_program,
    "lte-control": execute.lte_control,
    "lte-addition": execute.lte_addition,
    "wmt14": sequences.wmt14,
    "wmt14-ut-small": sequences.wmt14_small,
    "depth-fixed": facts.depth_fixed,
    "depth-random": facts.depth_random,
    "depth-halting": facts.depth_halting,
    "depth-halting-2x": facts.depth_halting_2x,
}
"""More recipes: columns of tables, and studies."""

_DIGITS = ("copy", "reverse", "addition")
_EXECUTE = ("lte-copy", "lte-double", "lte-reverse", "lte-program", "lte-control", "lte-addition")
_LANGUAGE = ("agreement", "lambada", "lambada-reading")
_COMPARED = (*_DIGITS, *_EXECUTE, *_LANGUAGE, "multi30k")
BASES_OF: dict[str, Sequence[str]] = {
    "lstm": (*_DIGITS, *_EXECUTE, *_LANGUAGE),
    "transformer": (*_COMPARED, "pictures", "wmt14"),
    "transformer-small": (*_COMPARED, "pictures", "wmt14"),
    "ut-halting": (*_COMPARED, "pictures"),
    "ut-halting-2x": _COMPARED,
    "ut-post-norm": (*_COMPARED, "wmt14"),
    "neural-gpu": _DIGITS,
}
"""Variant -> the bases that have it."""
DISTANCES = {
    algorithmic.distance_positions: (*_DIGITS, "parity", "prefix-parity", "sorting", "multiplication"),
    execute.distance_positions: _EXECUTE,
}
"""Ways to encode positions as distances -> their bases."""


def _variants(bases: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return every base with each of its variants, by name."""
    chosen = [(base, suffix, *VARIANTS[suffix]) for suffix, names in BASES_OF.items() for base in names]
    chosen += [
        (base, "distance-positions", change, "distance positions")
        for change, names in DISTANCES.items()
        for base in names
    ]
    return {
        f"{base}-{suffix}": variant(bases[base], change, suffix=suffix, title=title)
        for base, suffix, change, title in chosen
    }


RECIPES: dict[str, Recipe] = {**MAIN, **OF_TABLES, **_variants({**MAIN, **OF_TABLES})}
"""Every recipe by its name on the command line; the first line of its docstring is its summary."""

__all__ = ["MAIN", "RECIPES", "Recipe"]
