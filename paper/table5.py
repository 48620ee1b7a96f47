"""Tables 5 and 6, learning to execute: {copy, double, reverse} and {program, control, addition} × models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paper import printed
from paper.definition import (
    CHARACTERS,
    FIXED_LENGTH,
    LONG_MODELS,
    Column,
    Grid,
    ResultTable,
    as_printed,
    recipe_rows,
    titles,
    to_the_end,
)
from paper.printed import Cell

_MODELS = titles(
    "lstm",
    "transformer",
    "transformer-small",
    "ut",
    "ut-halting",
    "ut-halting-2x",
    "ut-post-norm",
    "ut-convolution",
    "ut-printed",
)


def _table(
    number: int,
    *,
    title: str,
    problems: Sequence[str],
    printed: Mapping[str, Sequence[Cell]],
    training: str,
    models: Mapping[str, str] = _MODELS,
    longer: Sequence[str] = (),
    deviations: Sequence[str] = (),
    records: Mapping[str, str] = {},
) -> ResultTable:
    trained = [model for model in models if model != "ut-printed"]
    rows = recipe_rows({problem: f"lte-{problem}" for problem in problems}, models=trained)
    rows |= {row: to_the_end(rows[row]) for row in rows if row.split("/")[1] in longer}
    as_in_print = {f"{problem}/ut-printed": as_printed(rows[f"{problem}/ut-halting"]) for problem in problems}
    return ResultTable(
        name=f"table{number}",
        title=f"learning to execute, {title}",
        naming="PROBLEM/MODEL",
        rows=rows | as_in_print,
        heading=f"Table {number}: learning to execute, {title}",
        introduction=f"""\
Scores are of free-running greedy output on sources of the greatest length and nesting; training mixes all lengths and
nestings, {training}. "Transformer" has the width and the depth of the Universal Transformer; the small one is
narrower, so that it has as many parameters."""
        + CHARACTERS,
        metric=FIXED_LENGTH,
        grids=[
            Grid(
                title=title.capitalize(),
                models={**models, **titles(*(row.split("/")[1] for row in records))},
                columns={
                    problem: Column(run=problem, metrics=("character_accuracy", "sequence_accuracy"), chance=0.1)
                    for problem in problems
                },
                printed=printed,
                source=f"paper, table {number}",
            )
        ],
        deviations=deviations,
        records=records,
    )


TABLE5 = _table(
    5,
    title="numbers of up to 55 digits",
    problems=("copy", "double", "reverse"),
    printed=printed.TABLE5,
    training="without a curriculum",
    models=_MODELS | titles("distance-positions"),
    longer=(*LONG_MODELS, "ut-convolution"),
    deviations=[
        "Runs of more than 1,500 updates have a constant rate and a running mean of the weights, and 32-bit floats.",
        "The row distance positions has rotary coordinates, in attention to the source too. For reverse they count "
        "from the end of the source too; for double the model has 4 steps, a convolution as transition, a sink in the "
        "attention to the source, and 1,500 updates.",
    ],
)
TABLE6 = _table(
    6,
    title="programs of nesting 2 and length 5",
    problems=("program", "control", "addition"),
    printed=printed.TABLE6,
    models=_MODELS | titles("ut-convolution-restart"),
    records={"control/ut-convolution-continued": "execute_control"},
    training="and lets longer programs in when the shorter ones are learned (a curriculum)",
    deviations=[
        "Programs are expressions, the form of the six tasks; the paper does not show its own. The target is the value "
        "modulo 10^(l + 1) for literals of l digits.",
        "The paper has no curriculum.",
        "A model with further updates has Muon in them, and 9 steps instead of 6 in the last 73,500, of which two "
        "processes made the last 48,500. The last 13,500 have width 128 instead of 64, twice the tokens in a batch "
        "and bfloat16.",
        "Runs of 600 to 1,500 updates have no curriculum, and twice the width.",
        "Control with convolutions has three loops for each conditional in training, all of one round until programs "
        "of all lengths are let in, and then one round more each time that the loss is low.",
        "In the row whose numbers are counted from their beginning, positions begin again after each symbol that is no "
        "digit, and a learned vector, multiplied by how many of these symbols stand before, is added to each symbol.",
    ],
)
