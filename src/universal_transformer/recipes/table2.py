"""Table 2, subject-verb agreement: language models by the number of nouns that lead them astray."""

from __future__ import annotations

from functools import partial

from universal_transformer.recipes import paper
from universal_transformer.recipes.language import FAMILIES
from universal_transformer.recipes.page import render
from universal_transformer.recipes.table import Column, Grid, Page, Table
from universal_transformer.recipes.variants import TITLES, rows

ROWS = rows({"agreement": FAMILIES["agreement"]})
_MODELS = {
    "stack-rnn": "Best Stack-RNN",
    "lstm": "LSTM",
    "attention": "Best attention",
    "transformer": TITLES["transformer"],
    "transformer-small": TITLES["transformer-small"],
    "ut": TITLES["ut"],
    "ut-halting": TITLES["ut-halting"],
}


def _grid(title: str, *, test: str) -> Grid:
    groups = {f"{number}": f"{test}, {number} attractor{'s' * (number != 1)}" for number in range(6)}
    return Grid(
        title=title,
        models=_MODELS,
        columns={
            name: Column(run="agreement", group=group, metrics=("accuracy",))
            for name, group in {**groups, "total": test}.items()
        },
        printed=paper.TABLE2,
        source=paper.TABLE2_SOURCE,
    )


_PAGE = Page(
    title="Table 2: subject-verb agreement",
    introduction="""\
Language models, tested on whether the right form of a verb is likelier than the wrong one, by the number of attractors:
nouns of the other number between subject and verb. The paper's figures are of another split (see the notes).""",
    grids=[
        _grid("The right form of the verb, in whole sentences", test="verbs"),
        _grid("The right tag of the verb, in beginnings of sentences", test="tags"),
    ],
    deviations=[
        "The official training file is not published with the data sets at hand: the split is a changed one, and much "
        "smaller. With the official file, `ut train agreement --data.corpus official` trains on it.",
        "The sentences at hand have far more attractors than those of the paper, nearly all of which have none: the "
        "totals do not compare; the columns by attractors do.",
        "The paper's Stack-RNN and its model with attention are not built here.",
    ],
)

TABLE2 = Table(
    name="table2",
    title="subject-verb agreement by the number of attractors",
    naming="TASK/MODEL",
    rows=ROWS,
    render=partial(render, page=_PAGE, rows=ROWS),
)
