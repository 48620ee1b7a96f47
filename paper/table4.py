"""Table 4, algorithmic tasks: {copy, reverse, addition} × models, trained on 40 symbols, tested on up to 400."""

from __future__ import annotations

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
from universal_transformer.recipes import Recipe
from universal_transformer.recipes.digit_problems import OPERATOR
from universal_transformer.recipes.start import Changes
from universal_transformer.typed import replaced

_MODELS = titles(
    "lstm",
    "transformer",
    "transformer-small",
    "transformer-restart",
    "ut",
    "ut-from-end",
    "ut-restart",
    "ut-halting",
    "ut-halting-2x",
    "ut-post-norm",
    "ut-printed",
    "neural-gpu",
    "distance-positions",
)
_PROBLEMS = ("copy", "reverse", "addition")
_COUNTED = ("transformer-restart", "ut-from-end", "ut-restart")
"""Models whose positions are counted in another way, each for one problem."""
_SCORES = ("character_accuracy", "sequence_accuracy")
_STEPS = {"copy": 2, "reverse": 2, "addition": 4}


def _rows() -> dict[str, Recipe]:
    """Rows of recipes; of those of the models that the paper compares, Transformers and LSTMs learn for 20,000 updates,
    and all have the test of the authors' generator as well.
    """
    models = [model for model in _MODELS if model not in (*_COUNTED, "ut-printed")]
    rows = recipe_rows({problem: problem for problem in _PROBLEMS}, models=models)
    compared = {
        f"{problem}/{model}": to_the_end(rows[f"{problem}/{model}"], steps=steps)
        for problem, steps in _STEPS.items()
        for model in LONG_MODELS
    }
    compared |= {f"{problem}/neural-gpu": rows[f"{problem}/neural-gpu"] for problem in _PROBLEMS}
    compared |= {f"{problem}/ut-printed": as_printed(compared[f"{problem}/ut-halting"]) for problem in _PROBLEMS}
    compared |= {"reverse/ut-from-end": _changed(compared["reverse/ut"], {"model.coordinates.from_end": True})}
    restarted = {"model.vocabulary.separator_id": OPERATOR}
    compared |= {
        f"addition/{model}-restart": _changed(compared[f"addition/{model}"], restarted)
        for model in ("transformer", "ut")
    }
    return rows | {name: _changed(recipe, {"data.test_up_to": 400}) for name, recipe in compared.items()}


def _changed(recipe: Recipe, changes: Changes) -> Recipe:
    return lambda: replaced(recipe(), changes)


TABLE4 = ResultTable(
    name="table4",
    title="copy, reverse and addition of digits, lengths 40 to 2,000",
    naming="PROBLEM/MODEL",
    rows=_rows(),
    heading="Table 4: algorithmic tasks",
    introduction="""\
Copy, reversal and addition of digits, trained on sources of up to 40 symbols, tested on sources of 400, as the paper
says, and on sources of up to 400, which the published generator of its authors draws for the test (tensor2tensor,
`data_generators/algorithmic.py`: every length as often, `dev_length` is the longest). The paper's figures stand in both
grids. Scores are of free-running greedy output. "Transformer" has the width and the depth of the Universal Transformer;
the small one is narrower, so that it has as many parameters. Only the Neural GPU has a curriculum, as in the paper."""
    + CHARACTERS,
    metric=FIXED_LENGTH,
    grids=[
        Grid(
            title="Sources of 400 symbols",
            models=_MODELS,
            columns={name: Column(run=name, group="length 400", metrics=_SCORES, chance=0.1) for name in _PROBLEMS},
            printed=printed.TABLE4,
            source="paper, table 4",
        ),
        Grid(
            title="Sources of up to 400 symbols, all lengths equally frequent",
            models=titles(*LONG_MODELS, *_COUNTED, "ut-printed", "neural-gpu"),
            columns={
                name: Column(run=name, group="length up to 400", metrics=_SCORES, chance=0.1) for name in _PROBLEMS
            },
            printed=printed.TABLE4,
            source="paper, table 4",
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
            for name in _PROBLEMS
        ),
        Grid(
            title="Longer sources",
            models=titles("distance-positions"),
            columns={
                f"{name}, {length}": Column(run=name, group=f"length {length}", metrics=_SCORES)
                for name in _PROBLEMS
                for length in (1000, 2000)
            },
        ),
        Grid(
            title="Addition of similar numbers",
            models=titles("distance-positions"),
            columns={
                f"{length}": Column(run="addition", group=f"length {length}, similar numbers", metrics=_SCORES)
                for length in (40, 80, 200, 400, 1000, 2000)
            },
        ),
    ],
    deviations=[
        "The paper does not say how many examples it trained and tested on: ours are generated when needed, "
        "100,000 an epoch; 100 of each length are tested.",
        "Lengths of 1,000 and 2,000 are not in the paper, and only the row distance positions is tested on them.",
        "Models have width 64 and 2 steps (4 for addition); "
        "earlier runs of 800 updates had 4: the paper states no sizes.",
        "The paper does not describe the curriculum of its Neural GPU. Ours lets in batches that are a tenth longer "
        "each time that the mean cross-entropy of 20 updates is below 0.3 nats. "
        "Its image is one column of 96 channels.",
        "Numbers of an addition are written with the last digit first, as the authors' generator writes them; earlier "
        "runs have the first digit first.",
        "In the authors' generator the first number of an addition has 1 to 200 digits, and the second one as many as "
        "are left, at most; ours draws the length of the source, and then where the plus stands.",
        "The row distance positions takes 2 steps (3 for addition). Its positions are rotary coordinates, in "
        "attention to the source too, with a sink, scattered in training. For reverse they count from both ends; for "
        "addition they restart after the plus, are spread over random windows, and the transition is a convolution.",
        "In the row whose source is counted from its end, the symbol to write next has the position that is written: "
        "with these coordinates reversing is what copying is with the paper's.",
        "In the rows whose numbers are counted from their beginning, positions begin again after the plus, and a "
        "learned vector is added to the digits after it.",
        "For addition, a fifth of the training sources of the row distance positions are similar numbers: they have "
        "few different digits, and many of them are equal at the same places. The other sources are random numbers, as "
        "in all other rows.",
    ],
)
