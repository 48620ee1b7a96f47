"""Table 4, algorithmic tasks: {copy, reverse, addition} × models, trained on 40 symbols, tested on up to 400."""

from __future__ import annotations

from functools import partial

from universal_transformer.recipes import paper
from universal_transformer.recipes.algorithmic import (
    addition,
    addition_ours,
    copy,
    copy_ours,
    reverse,
    reverse_ours,
)
from universal_transformer.recipes.page import render
from universal_transformer.recipes.table import Column, Grid, Page, Table
from universal_transformer.recipes.variants import TITLES, Recipe, family, rows

MODELS = ("lstm", "transformer", "transformer-small", "ut", "ut-halting", "neural-gpu")
DIGITS, DIGITS_AND_PLUS = 14, 15
"""Vocabularies: padding, start, end, unknown and the symbols."""


def _rows(name: str, base: Recipe, ours: Recipe, *, vocabulary_size: int) -> dict[str, Recipe]:
    found = family(name, base, models=MODELS, vocabulary_size=vocabulary_size)
    return {**found, "ours": ours}


ROWS = rows(
    {
        "copy": _rows("copy", copy, copy_ours, vocabulary_size=DIGITS),
        "reverse": _rows("reverse", reverse, reverse_ours, vocabulary_size=DIGITS),
        "addition": _rows("addition", addition, addition_ours, vocabulary_size=DIGITS_AND_PLUS),
    }
)
_SCORES = ("character_accuracy", "sequence_accuracy")
_MODELS = {model: TITLES[model] for model in (*MODELS, "ours")}

_PAGE = Page(
    title="Table 4: algorithmic tasks",
    introduction="""\
Digits to copy, to reverse and to add, trained on sources of up to 40 symbols without a curriculum, tested on sources
of 400. Scores are of free-running greedy output. "Transformer" has the width and the depth of the Universal
Transformer; the small one is narrower, so that it has as many parameters.""",
    grids=[
        Grid(
            title="Sources of 400 symbols",
            models=_MODELS,
            columns={
                name: Column(run=name, group="length 400", metrics=_SCORES)
                for name in ("copy", "reverse", "addition")
            },
            printed=paper.TABLE4,
            source=paper.TABLE4_SOURCE,
        ),
        *(
            Grid(
                title=f"{name.capitalize()}, by length",
                models=_MODELS,
                columns={
                    f"{length}": Column(run=name, group=f"length {length}", metrics=_SCORES)
                    for length in (40, 80, 200, 400)
                },
            )
            for name in ("copy", "reverse", "addition")
        ),
    ],
    deviations=[
        "The paper does not say how many examples it trained and tested on: ours are made up as they are needed, "
        "100,000 an epoch, and 100 of each length are tested.",
        "Minutes on one core, width 64, 4 steps, norms in front of the sub-layers: the paper names no sizes.",
        "The paper trained its Neural GPU with a curriculum; ours has none.",
        "Numbers of an addition are written with the first digit first, but by the row ours: with the last one first.",
        "The row ours takes 2 steps (3 to add) and tells positions otherwise: by rotary coordinates in attention to "
        "the source too, scattered while training, with a sink; for reverse from both ends; for addition counted "
        "anew behind the plus and scattered over random windows, with a convolution as transition.",
    ],
)

TABLE4 = Table(
    name="table4",
    title="copy, reverse and addition of digits, lengths 40 to 400",
    naming="PROBLEM/MODEL",
    rows=ROWS,
    render=partial(render, page=_PAGE, rows=ROWS),
)
