"""Table 7, translation from English to German: WMT14 where its files are, and Multi30k."""

from __future__ import annotations

from functools import partial

from universal_transformer.recipes import paper
from universal_transformer.recipes.page import render
from universal_transformer.recipes.table import Column, Grid, Page, Table
from universal_transformer.recipes.translation import VOCABULARY, multi30k, wmt14, wmt14_small
from universal_transformer.recipes.variants import TITLES, family, rows

ROWS = rows(
    {
        "multi30k": family(
            "multi30k",
            multi30k,
            models=("transformer", "transformer-small", "ut", "ut-halting"),
            vocabulary_size=VOCABULARY["multi30k"],
        ),
        "wmt14": {
            **family("wmt14", wmt14, models=("transformer", "ut"), vocabulary_size=VOCABULARY["wmt14"]),
            "ut-small": wmt14_small,
        },
    }
)
_SETS = {"test 2016": "test_2016_flickr", "test 2017": "test_2017_flickr", "COCO 2017": "test_2017_mscoco"}

_PAGE = Page(
    title="Table 7: translation from English to German",
    introduction="""\
Greedy output, scored by sacreBLEU (BLEU with its own tokeniser, case kept) and chrF. "Transformer" has the width and
the depth of the Universal Transformer (equal compute); the small one has as many parameters.""",
    grids=[
        Grid(
            title="WMT14, newstest 2014",
            models={
                "ut-small": "Universal Transformer small",
                "transformer": "Transformer base",
                "weighted-transformer": "Weighted Transformer base",
                "ut": "Universal Transformer base",
            },
            columns={"newstest 2014": Column(run="wmt14", group="newstest2014", metrics=("bleu",))},
            printed=paper.TABLE7,
            source=paper.TABLE7_SOURCE,
        ),
        Grid(
            title="Multi30k",
            models={
                model: TITLES[model] for model in ("transformer", "transformer-small", "ut", "ut-halting")
            },
            columns={
                title: Column(run="multi30k", group=name, metrics=("bleu", "chrf"))
                for title, name in _SETS.items()
            },
        ),
    ],
    deviations=[
        "The paper has no figures for Multi30k (29,000 pairs): it stands in where the files of WMT14 are not at hand.",
        "Rows of WMT14 need a user's own files: docs/reproduction.md says which.",
    ],
)

TABLE7 = Table(
    name="table7",
    title="translation from English to German: Multi30k, and WMT14 where its files are",
    naming="CORPUS/MODEL",
    rows=ROWS,
    render=partial(render, page=_PAGE, rows=ROWS),
)
