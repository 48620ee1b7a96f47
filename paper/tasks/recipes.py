"""Recipes of the tasks of this package, and their variants."""

from __future__ import annotations

from functools import partial

from paper.tasks import execute
from paper.tasks.agreement import AgreementData
from paper.tasks.lambada import LambadaData, ReadingData
from paper.tasks.pieces import PiecesData
from paper.tasks.translation import TranslationData
from universal_transformer.presets import SIZES
from universal_transformer.recipes import MAIN, RECIPES
from universal_transformer.recipes.questions import stories
from universal_transformer.recipes.start import Changes, constant_rate, family, named, start
from universal_transformer.recipes.users_files import PAIRS
from universal_transformer.recipes.variants import SMALL_SIZES, VARIANTS, changed, norm_after_sums, variants
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced

_SIX_STEPS = {
    "model.architecture": "language_model",
    "model.depth.max_steps": 6,
    "training.ponder_weight": 0.005,
}
_ON_NOVELS = {
    **_SIX_STEPS,
    "training.minutes": 60.0,
    "training.batch_tokens": 2048,
    "training.precision": "bfloat16",
}


def _longer(*, minutes: float) -> Changes:
    """At most so many minutes, or 20,000 updates at a constant rate, with a running mean of the weights."""
    return {
        **constant_rate(),
        "training.max_updates": 20_000,
        "training.minutes": minutes,
        "training.batch_tokens": 2048,
        "training.learning_rate": 1e-3,
        "training.validate_every": 1000,
    }


def agreement() -> RunConfig:
    """Which form of a verb agrees with its subject, by a language model (table 2; `ut data fetch sva`)."""
    return start("agreement", AgreementData(), _SIX_STEPS)


def agreement_more_text() -> RunConfig:
    """The same with the novels and a part of WikiText-2 as further text to train on (table 2)."""
    return start("agreement-more-text", AgreementData(more_text=True, repeat=10), _SIX_STEPS, _longer(minutes=120.0))


def lambada() -> RunConfig:
    """The last word of a passage, by a language model on novels (table 3; `ut data fetch lambada`, `novels`)."""
    return start("lambada", LambadaData(), _ON_NOVELS)


def lambada_pieces() -> RunConfig:
    """The last word of a passage as a sequence of parts of words, by a language model on novels (table 3)."""
    precision = {"training.precision": "bfloat16"}  # 0.29 s an update on a core with AMX, and 0.43 in 32 bits
    return start("lambada-pieces", PiecesData(), _SIX_STEPS, _longer(minutes=180.0), precision)


def lambada_reading() -> RunConfig:
    """The last word of a passage, among the words before its last sentence (table 3, reading comprehension)."""
    reader = {"model.architecture": "classifier", "model.outputs.pooling": "pointer"}
    data = ReadingData(answers="all", frequent=300, train_examples=1_000_000)
    return start("lambada-reading", data, _SIX_STEPS, _longer(minutes=180.0), reader)


def _convolution(config: RunConfig) -> RunConfig:
    """The paper's other transition, which reads neighbours: of a word, those that tell which word is asked for."""
    return replaced(config, {"model.transition.kind": "separable_convolution"})


def _of_steps(name: str) -> RunConfig:
    return replaced(lambada(), {"recipe": name, "model.depth.max_steps": int(name.removeprefix("lambada-ut-"))})


def multi30k() -> RunConfig:
    """Multi30k, English to German image descriptions (`ut data fetch multi30k`)."""
    return start("multi30k", TranslationData(vocabulary_size=4000), PAIRS, {"training.precision": "bfloat16"})


def wmt14() -> RunConfig:
    """WMT14 English to German from your own files, in the base size of the authors' code (table 7)."""
    changes = {
        "model.sizes": SIZES["base"],
        "model.depth.max_steps": 6,
        "training.max_updates": 100_000,
        "training.batch_tokens": 25_000,
        "training.learning_rate": 7e-4,
        "training.schedule": "inverse_sqrt",
        "training.warmup_updates": 8000,
        "training.label_smoothing": 0.1,
        "training.validate_every": 2000,
        "training.average_checkpoints": 5,
        "training.precision": "bfloat16",
    }
    return start("wmt14", TranslationData(corpus="wmt14", vocabulary_size=32_000), changes)


def wmt_news() -> RunConfig:
    """WMT news test sets and Tatoeba in place of WMT14's training files, tested on newstest 2014 (table 7)."""
    changes = {
        "training.max_updates": 20_000,
        "training.minutes": 180.0,
        "training.schedule": "inverse_sqrt",
        "training.warmup_updates": 1000,
        "training.validate_every": 2000,
    }
    return start("wmt-news", TranslationData(corpus="wmt-news", vocabulary_size=4000), PAIRS, changes)


def wmt14_ut_small() -> RunConfig:
    """WMT14 English to German from your own files, in the small size of the authors' code (table 7)."""
    return replaced(wmt14(), {"recipe": "wmt14-ut-small", "model.sizes": SIZES["small"]})


_DEPTH_STUDY: dict[str, Changes] = {
    "depth-fixed": {"model.halting.side": "none"},
    "depth-random": {"model.halting.side": "none", "training.depth": "random"},
    "depth-halting": {},
    "depth-halting-2x": {"model.depth.max_steps": 12, "model.halting.bias": None},
}


def _depth_study(name: str) -> RunConfig:
    """The training is that of the runs in results/paper/depth.jsonl."""
    as_recorded = {"recipe": name, "training.schedule": "cosine", "training.ema_decay": None}
    return replaced(stories(), {**as_recorded, **_DEPTH_STUDY[name]})


STUDY = family(
    _depth_study,
    {
        "depth-fixed": "Stories at 6 steps in training, tested at 1 to 12 (the depth study).",
        "depth-random": "Stories at 1 to 6 steps in training, drawn for each update, tested at 1 to 12 (the depth "
        "study).",
        "depth-halting": "Stories with dynamic halting, a cap of 6 steps in training, tested at caps of 1 to 12 (the "
        "depth study).",
        "depth-halting-2x": "Stories with dynamic halting, a cap of 12 steps in training, tested at caps of 1 to 12 "
        "(the depth study).",
    },
)

_LANGUAGE = named(agreement, lambada, lambada_reading)
_LONGER = named(agreement_more_text, lambada_pieces)
_BASES = {**_LANGUAGE, **_LONGER, **named(multi30k, wmt14, wmt_news), **execute.COLUMNS}
_PROGRAMS = {name: execute.COLUMNS[name] for name in ("lte-program", "lte-control", "lte-addition")}
"""Bases that post-norm learns better with half of their learning rate (notebook/README.md)."""
_COMPARED = (*_LANGUAGE, "multi30k", *execute.COLUMNS)
_MORE = (*_COMPARED, *_LONGER, "wmt-news")
BASES_OF = {
    "lstm": (*_LANGUAGE, *_LONGER, *execute.COLUMNS),
    "transformer": (*_MORE, "wmt14"),
    "transformer-small": (*(name for name in _MORE if name != "lambada-pieces"), "wmt14"),
    "ut-halting": _MORE,
    "ut-halting-2x": _COMPARED,
    "ut-post-norm": [name for name in _BASES if name not in {**_PROGRAMS, **_LONGER}],
}
"""Variant -> the bases that have it."""
SMALL = {
    "agreement": (80, 399),
    "agreement-more-text": (88, 385),
    "lambada": (96, 530),
    "lambada-reading": (104, 690),
    "multi30k": (104, 517),
    "wmt-news": (104, 517),
    "wmt14": (512, 2183),
    **dict.fromkeys(("lte-copy", "lte-double", "lte-reverse"), (48, 252)),
    **dict.fromkeys(_PROGRAMS, (24, 126)),
}
_SUMMARY = "The last word of a passage, by a language model on novels: Universal Transformer of {} steps (table 3)."


def add_recipes() -> None:
    """Enter the recipes of this package, and their variants, where those of the library are."""
    SMALL_SIZES.update(SMALL)
    MAIN.update(_LANGUAGE | execute.MAIN | named(multi30k))
    RECIPES.update(_BASES | execute.MAIN | named(wmt14_ut_small) | STUDY | variants(_BASES, BASES_OF))
    half, title = partial(norm_after_sums, rate=0.5), VARIANTS["ut-post-norm"][1]
    RECIPES.update(changed(_PROGRAMS, half, suffix="ut-post-norm", title=title))
    distances = execute.distance_positions
    numbers = {name: recipe for name, recipe in execute.COLUMNS.items() if name not in _PROGRAMS}
    RECIPES.update(changed(numbers, distances, suffix="distance-positions", title="distance positions"))
    nearby = named(lambada_reading, agreement_more_text) | execute.COLUMNS
    RECIPES.update(changed(nearby, _convolution, suffix="ut-convolution", title="UT, separable convolutions"))
    again = "UT, separable convolutions, each number counted from its beginning"
    RECIPES.update(changed(_PROGRAMS, execute.restart, suffix="ut-convolution-restart", title=again))
    untied = {"lambada-reading-transformer": RECIPES["lambada-reading-transformer"]}
    RECIPES.update(changed(untied, _convolution, suffix="convolution", title="separable convolutions"))
    RECIPES.update(family(_of_steps, {f"lambada-ut-{steps}": _SUMMARY.format(steps) for steps in (8, 9)}))
