"""Not in the paper: parity, sorting and multiplication of digits, trained on up to 40 symbols."""

from __future__ import annotations

from paper.definition import CHARACTERS, FIXED_LENGTH, Column, Grid, ResultTable, recipe_rows, titles

_MODELS = titles("ut", "distance-positions")
_PROBLEMS = ("parity", "prefix-parity", "sorting", "multiplication")
_SCORES = ("character_accuracy", "sequence_accuracy")

DIGITS_STUDY = ResultTable(
    name="digits",
    title="parity, sorting and multiplication of digits, lengths 40 to 2,000",
    naming="PROBLEM/MODEL",
    rows=recipe_rows({problem: problem for problem in _PROBLEMS}, models=_MODELS),
    heading="Parity, sorting and multiplication",
    introduction="""\
Problems on digits that the paper does not have, trained on sources of up to 40 symbols, tested on longer ones. Parity
is answered with one digit; of prefix parity the answer has the parity of each prefix of the source. Multiplication is
of a long number and one digit. The row distance positions has the recipes of table 4 with rotary positions. Of these,
multiplication has a constant learning rate and a running mean of the weights, the others a cosine to 0. Factors and
products are written with the last digit first there, and with the first digit first in the recorded runs of the row
without it. Scores are of free-running greedy output."""
    + CHARACTERS,
    metric=FIXED_LENGTH,
    grids=[
        Grid(
            title=f"{name.capitalize().replace('-', ' ')}, by length",
            models=_MODELS,
            columns={
                f"{length}": Column(run=name, group=f"length {length}", metrics=_SCORES)
                for length in (40, 80, 200, 400, 1000, 2000)
            },
        )
        for name in _PROBLEMS
    ],
)
