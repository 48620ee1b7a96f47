"""Table 2, subject-verb agreement: accuracy of language models by the number of attractors."""

from __future__ import annotations

from collections.abc import Mapping

from paper import printed
from paper.definition import Column, Grid, ResultTable, recipe_rows, titles

_OURS = titles("lstm", "transformer", "transformer-small", "ut", "ut-halting", "ut-halting-2x", "ut-post-norm")
_MODELS = {
    "stack-rnn": "Best Stack-RNN",
    **titles("lstm"),
    "attention": "Best attention",
    **_OURS,
    "difference": "UT, dynamic halting, minus the best earlier model (as printed)",
    "stack-rnn-v1": "Best Stack-RNN, in version 1",
    "lstm-v1": "LSTM, in version 1",
    "attention-v1": "Best attention, in version 1",
    "transformer-v1": "Transformer, in version 1",
    "ut-v1": "Universal Transformer, in version 1",
    "adaptive-small-v1": "Adaptive Universal Transformer (small), in version 1",
    "adaptive-base-v1": "Adaptive Universal Transformer (base), in version 1",
}


_TESTED = {0: 1_354_730, 1: 52_599, 2: 9_380, 3: 2_051, 4: 561, 5: 159}
"""Attractors -> dependencies in Linzen's test file. Those of 1 to 5 are counted. The validation file has 15,772, a
hundredth of the whole, and the test file nine tenths: the rest of 90 × 15,772 has none."""


def _attractors(number: int) -> str:
    return f"{number} attractor{'s' * (number != 1)}"


_LONGER = titles("lstm", "transformer", "transformer-small", "ut", "ut-halting", "ut-convolution")
_MORE = "agreement-more-text"


def _grid(title: str, *, test: str, run: str = "agreement", models: Mapping[str, str] = _MODELS) -> Grid:
    scores = ("accuracy",)
    shares = {_attractors(number): count / sum(_TESTED.values()) for number, count in _TESTED.items()}
    return Grid(
        title=title,
        models=models,
        columns={
            **{
                f"{number}": Column(run=run, group=f"{test}, {_attractors(number)}", metrics=scores)
                for number in _TESTED
            },
            "total": Column(run=run, group=test, metrics=scores, shares=shares),
        },
        printed={model: cells for model, cells in printed.TABLE2.items() if model in models},
        source="paper, table 2",
    )


TABLE2 = ResultTable(
    name="table2",
    title="subject-verb agreement by the number of attractors",
    naming="TASK/MODEL",
    rows={
        **recipe_rows({"agreement": "agreement"}, models=_OURS),
        **recipe_rows({_MORE: _MORE}, models=_LONGER),
    },
    heading="Table 2: subject-verb agreement",
    introduction="""\
Language models, tested on whether the right form of a verb is more probable than the wrong one, by the number of
attractors: nouns of the other number between subject and verb. The paper's figures are of another split (see
the notes).""",
    grids=[
        _grid("The right form of the verb, in whole sentences", test="verbs"),
        _grid("The right tag of the verb, in beginnings of sentences", test="tags"),
        _grid("The right form of the verb, after more text and time", test="verbs", run=_MORE, models=_LONGER),
        _grid("The right tag of the verb, after more text and time", test="tags", run=_MORE, models=_LONGER),
    ],
    deviations=[
        "The official training file is not among the available data sets: the split is different and much "
        "smaller. With the official file, `ut train agreement --data.corpus official` trains on it.",
        "The rows after more text are trained on 696,388 sentences of older novels and 7,988 of WikiText-2's "
        "validation part too, at most two hours each; the paper's models see sentences of the official file alone.",
        "The available sentences have far more attractors than those of the paper, of which about 95 % have none. So "
        "our total is the mean of the columns by attractors, weighted by how often each number occurs in the paper's "
        "test file. Who always chose the number of the nearest noun would have a total of about 0.95.",
        "The paper's Stack-RNN and its model with attention are not implemented here.",
    ],
)
