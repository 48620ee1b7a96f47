"""Table 3, LAMBADA: the last word of a passage, by a language model and by reading."""

from __future__ import annotations

from universal_transformer.reproduction import paper
from universal_transformer.reproduction.definition import TITLES, Column, Grid, ResultTable, recipe_rows

_ROWS = {
    **recipe_rows(
        {"lambada": "lambada"},
        models=("lstm", "transformer", "transformer-small", "ut", "ut-halting", "ut-8", "ut-9"),
    ),
    **recipe_rows(
        {"lambada-reading": "lambada-reading"},
        models=("lstm", "transformer", "transformer-small", "ut", "ut-halting"),
    ),
}
_MODELS = {
    **{model: TITLES[model] for model in ("lstm", "transformer", "transformer-small")},
    "ut": "Universal Transformer, 6 steps",
    "ut-halting": TITLES["ut-halting"],
    "ut-8": "Universal Transformer, 8 steps",
    "ut-9": "Universal Transformer, 9 steps",
}
_SETS = ("control", "development", "test")


TABLE3 = ResultTable(
    name="table3",
    title="LAMBADA: the last word of a passage, by a language model and by reading",
    naming="TASK/MODEL",
    rows=_ROWS,
    heading="Table 3: LAMBADA",
    introduction="""\
The last word of a passage, which can be predicted only from the whole passage. Language models give a probability to
every word of their vocabulary; for reading comprehension the answer is one of the words of the passage.""",
    grids=[
        Grid(
            title="Language modelling",
            models={"neural-cache": "Neural cache", **_MODELS},
            columns={
                name: Column(run="lambada", group=name, metrics=("perplexity", "accuracy")) for name in _SETS
            },
            printed=paper.TABLE3_LM,
            source="paper, table 3",
        ),
        Grid(
            title="Reading comprehension",
            models={
                "dhingra": "Dhingra et al.",
                **{name: title for name, title in _MODELS.items() if name not in ("ut-8", "ut-9")},
            },
            columns={
                name: Column(run="lambada-reading", group=name, metrics=("accuracy",)) for name in _SETS
            },
            printed=paper.TABLE3_RC,
            source="paper, table 3",
        ),
    ],
    deviations=[
        "The training novels of LAMBADA (200 million words) and its control set are not available; 97 older English "
        "novels (13.7 million words) replace them.",
    ],
)
