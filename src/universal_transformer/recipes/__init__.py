"""Recipes: plain functions, each of which returns the whole configuration of a run.

>>> from universal_transformer.recipes import RECIPES
>>> config = RECIPES["stories"]()
"""

from __future__ import annotations

from collections.abc import Callable

from universal_transformer.recipes.algorithmic import addition, copy, reverse
from universal_transformer.recipes.baselines import copy_lstm, copy_neural_gpu
from universal_transformer.recipes.execute import (
    lte,
    lte_addition,
    lte_control,
    lte_copy,
    lte_double,
    lte_program,
    lte_reverse,
)
from universal_transformer.recipes.facts import babi, babi_1k_joint, babi_10k_joint, stories
from universal_transformer.recipes.files import labelled, multi30k, pairs, text
from universal_transformer.training.config import RunConfig

RECIPES: dict[str, Callable[[], RunConfig]] = {
    "stories": stories,
    "babi": babi,
    "babi-10k-joint": babi_10k_joint,
    "babi-1k-joint": babi_1k_joint,
    "copy": copy,
    "copy-lstm": copy_lstm,
    "copy-neural-gpu": copy_neural_gpu,
    "reverse": reverse,
    "addition": addition,
    "lte": lte,
    "lte-copy": lte_copy,
    "lte-double": lte_double,
    "lte-reverse": lte_reverse,
    "lte-program": lte_program,
    "lte-control": lte_control,
    "lte-addition": lte_addition,
    "pairs": pairs,
    "text": text,
    "labelled": labelled,
    "multi30k": multi30k,
}
"""Every recipe by its name on the command line; the first line of its docstring is its summary."""

__all__ = ["RECIPES"]
