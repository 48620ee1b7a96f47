"""Table 3, LAMBADA: the last word of a passage, by a language model and by reading."""

from __future__ import annotations

from paper import printed
from paper.definition import Column, Grid, ResultTable, recipe_rows, titles

_READERS = {
    **titles("lstm", "transformer", "transformer-small"),
    "ut": "Universal Transformer, 6 steps",
    **titles("ut-halting", "ut-halting-2x", "ut-post-norm"),
}
_READING = _READERS | titles("ut-convolution", "transformer-convolution")
_MODELS = _READERS | {
    "ut-8": "Universal Transformer, 8 steps",
    "ut-9": "Universal Transformer, 9 steps",
}
_PIECES = titles("lstm", "transformer", "ut", "ut-halting")
_SETS = ("control", "development", "test")


TABLE3 = ResultTable(
    name="table3",
    title="LAMBADA: the last word of a passage, by a language model and by reading",
    naming="TASK/MODEL",
    rows={
        **recipe_rows({"lambada": "lambada"}, models=_MODELS),
        **recipe_rows({"lambada-pieces": "lambada-pieces"}, models=_PIECES),
        **recipe_rows({"lambada-reading": "lambada-reading"}, models=_READING),
    },
    heading="Table 3: LAMBADA",
    introduction=f"""\
The last word of a passage, which can be predicted only from the whole passage. Language models give a probability to
every word of their vocabulary; of parts of words, to every word. For reading comprehension the answer is one of the
words of the passage. The paper's best model with dynamic halting took {printed.LAMBADA_STEPS} steps.""",
    grids=[
        Grid(
            title="Language modelling",
            models={
                "neural-cache": "Neural cache",
                **_MODELS,
                "transformer-v1": "Transformer, in version 1",
                "ut-halting-v1": "Adaptive Universal Transformer, in version 1",
            },
            columns={name: Column(run="lambada", group=name, metrics=("perplexity", "accuracy")) for name in _SETS},
            printed=printed.TABLE3_LM,
            source="paper, table 3",
        ),
        Grid(
            title="Language modelling, a word as a sequence of its parts",
            models=_PIECES,
            columns={
                name: Column(run="lambada-pieces", group=name, metrics=("perplexity", "accuracy")) for name in _SETS
            },
            printed={model: cells for model, cells in printed.TABLE3_LM.items() if model in _PIECES},
            source="paper, table 3",
        ),
        Grid(
            title="Reading comprehension",
            models={"dhingra": "Dhingra et al.", **_READING},
            columns={name: Column(run="lambada-reading", group=name, metrics=("accuracy",)) for name in _SETS},
            printed=printed.TABLE3_RC,
            source="paper, table 3",
        ),
    ],
    deviations=[
        "The training novels of LAMBADA (200 million words) are not available; 97 older English novels (13.7 million "
        "words) replace them. Earlier runs, which have no figure for the control set, were trained on all of them.",
        "The control set is not available; 5,000 passages at random places of 5 of these novels, which are not trained "
        "on, replace it: passages of the same shape, which no reader chose, as in the paper.",
        "As reading, each word of a sentence is asked for that also stands in the sentences before it, and is none of "
        "the 300 most frequent ones: 250,669 passages. In earlier runs only last words were, whatever their frequency.",
        "In the rows of parts of words, byte pairs, a word is right if greedy choice writes its parts and then begins "
        "another word, and its perplexity is that of its parts and of this beginning.",
        "Of the language models with a cap of twice the depth, the one that is best on validation is an older run that "
        "began with random halting weights; notebook/paper_tables.md has three seeds of this row.",
    ],
)
