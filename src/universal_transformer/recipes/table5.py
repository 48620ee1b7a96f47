"""Tables 5 and 6, learning to execute: {copy, double, reverse} and {program, control, addition} × models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from universal_transformer.recipes import paper
from universal_transformer.recipes.execute import (
    by_distance,
    lte_addition,
    lte_control,
    lte_copy,
    lte_double,
    lte_program,
    lte_reverse,
)
from universal_transformer.recipes.page import render
from universal_transformer.recipes.paper import Cell
from universal_transformer.recipes.table import Column, Grid, Page, Table
from universal_transformer.recipes.variants import TITLES, Recipe, changed, family, rows

MODELS = ("lstm", "transformer", "transformer-small", "ut", "ut-halting")
TITLED = {model: TITLES[model] for model in (*MODELS, "ours")}
DIGITS, SYMBOLS = 14, 33
"""Vocabularies of numbers and of programs: padding, start, end, unknown and the symbols."""


def _table(
    number: int,
    *,
    title: str,
    problems: Mapping[str, Recipe],
    vocabulary_size: int,
    printed: Mapping[str, Sequence[Cell]],
    source: str,
    deviations: Sequence[str] = (),
) -> Table:
    made = rows(
        {
            name: {
                **family(f"lte-{name}", recipe, models=MODELS, vocabulary_size=vocabulary_size),
                "ours": changed(recipe, change=by_distance, by="positions told by distance"),
            }
            for name, recipe in problems.items()
        }
    )
    page = Page(
        title=f"Table {number}: learning to execute, {title}",
        introduction="""\
Scores are of free-running greedy output on sources of the greatest length and nesting; training mixes all lengths and
nestings, without a curriculum. "Transformer" has the width and the depth of the Universal Transformer; the small one is
narrower, so that it has as many parameters.""",
        grids=[
            Grid(
                title=title.capitalize(),
                models=TITLED,
                columns={
                    name: Column(run=name, metrics=("character_accuracy", "sequence_accuracy"))
                    for name in problems
                },
                printed=printed,
                source=source,
            )
        ],
        deviations=deviations,
    )
    return Table(
        name=f"table{number}",
        title=f"learning to execute, {title}",
        naming="PROBLEM/MODEL",
        rows=made,
        render=partial(render, page=page, rows=made),
    )


TABLE5 = _table(
    5,
    title="numbers of up to 55 digits",
    problems={"copy": lte_copy, "double": lte_double, "reverse": lte_reverse},
    vocabulary_size=DIGITS,
    printed=paper.TABLE5,
    source=paper.TABLE5_SOURCE,
)
TABLE6 = _table(
    6,
    title="programs of nesting 2 and length 5",
    problems={"program": lte_program, "control": lte_control, "addition": lte_addition},
    vocabulary_size=SYMBOLS,
    printed=paper.TABLE6,
    source=paper.TABLE6_SOURCE,
    deviations=["Programs are expressions, the form of the six tasks; the paper does not show its own."],
)
