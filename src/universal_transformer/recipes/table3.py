"""Table 3, LAMBADA: the last word of a passage, by a language model and by reading."""

from __future__ import annotations

from functools import partial

from universal_transformer.recipes import paper
from universal_transformer.recipes.language import FAMILIES, lambada
from universal_transformer.recipes.page import render
from universal_transformer.recipes.table import Column, Grid, Page, Table
from universal_transformer.recipes.variants import TITLES, rows
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import replaced


def lambada_ut_8() -> RunConfig:
    """The last word of a passage, by a language model on novels: Universal Transformer of 8 steps (table 3)."""
    return _deeper(8)


def lambada_ut_9() -> RunConfig:
    """The last word of a passage, by a language model on novels: Universal Transformer of 9 steps (table 3)."""
    return _deeper(9)


def _deeper(max_steps: int) -> RunConfig:
    return replaced(lambada(), {"recipe": f"lambada-ut-{max_steps}", "model.depth.max_steps": max_steps})


ROWS = rows(
    {
        "lambada": {**FAMILIES["lambada"], "ut-8": lambada_ut_8, "ut-9": lambada_ut_9},
        "lambada-reading": FAMILIES["lambada-reading"],
    }
)
_MODELS = {
    **{model: TITLES[model] for model in ("lstm", "transformer", "transformer-small")},
    "ut": "Universal Transformer, 6 steps",
    "ut-halting": TITLES["ut-halting"],
    "ut-8": "Universal Transformer, 8 steps",
    "ut-9": "Universal Transformer, 9 steps",
}
_SETS = ("control", "development", "test")

_PAGE = Page(
    title="Table 3: LAMBADA",
    introduction="""\
The last word of a passage that can be guessed only by those who read all of it. Language models give a probability to
every word of their vocabulary; for reading comprehension the answer is one of the words of the passage.""",
    grids=[
        Grid(
            title="Language modelling",
            models={"neural-cache": "Neural cache", **_MODELS},
            columns={
                name: Column(run="lambada", group=name, metrics=("perplexity", "accuracy")) for name in _SETS
            },
            printed=paper.TABLE3_LM,
            source=paper.TABLE3_SOURCE,
        ),
        Grid(
            title="Reading comprehension",
            models={
                "dhingra": "Dhingra et al.",
                **{name: _MODELS[name] for name in FAMILIES["lambada-reading"]},
            },
            columns={
                name: Column(run="lambada-reading", group=name, metrics=("accuracy",)) for name in _SETS
            },
            printed=paper.TABLE3_RC,
            source=paper.TABLE3_SOURCE,
        ),
    ],
    deviations=[
        "The training novels of LAMBADA (200 million words) and its control set are not at hand; 97 older English "
        "novels (13.7 million words) stand in for them.",
    ],
)

TABLE3 = Table(
    name="table3",
    title="LAMBADA: the last word of a passage, by a language model and by reading",
    naming="TASK/MODEL",
    rows=ROWS,
    render=partial(render, page=_PAGE, rows=ROWS),
)
