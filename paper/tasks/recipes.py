"""Recipes of the tasks of this package, and their variants."""

from __future__ import annotations

from paper.tasks.agreement import AgreementData
from paper.tasks.lambada import LambadaData, ReadingData
from universal_transformer.recipes import MAIN, RECIPES
from universal_transformer.recipes.start import family, named, start
from universal_transformer.recipes.variants import SMALL_SIZES, variants
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


def agreement() -> RunConfig:
    """Which form of a verb agrees with its subject, by a language model (table 2; `ut data fetch sva`)."""
    return start("agreement", AgreementData(), _SIX_STEPS)


def lambada() -> RunConfig:
    """The last word of a passage, by a language model on novels (table 3; `ut data fetch lambada`, `novels`)."""
    return start("lambada", LambadaData(), _ON_NOVELS)


def lambada_reading() -> RunConfig:
    """The last word of a passage, among the words before its last sentence (table 3, reading comprehension)."""
    reader = {"model.architecture": "classifier", "model.outputs.pooling": "pointer"}
    return start("lambada-reading", ReadingData(), _ON_NOVELS, reader)


def _of_steps(name: str) -> RunConfig:
    return replaced(lambada(), {"recipe": name, "model.depth.max_steps": int(name.removeprefix("lambada-ut-"))})


BASES = named(agreement, lambada, lambada_reading)
_SUMMARY = "The last word of a passage, by a language model on novels: Universal Transformer of {} steps (table 3)."
_SUFFIXES = ("lstm", "transformer", "transformer-small", "ut-halting", "ut-halting-2x", "ut-post-norm")


def add_recipes() -> None:
    """Enter the recipes of this package, and their variants, where those of the library are."""
    SMALL_SIZES.update({"agreement": (80, 399), "lambada": (96, 530), "lambada-reading": (104, 618)})
    MAIN.update(BASES)
    RECIPES.update(BASES | variants(BASES, dict.fromkeys(_SUFFIXES, tuple(BASES))))
    RECIPES.update(family(_of_steps, {f"lambada-ut-{steps}": _SUMMARY.format(steps) for steps in (8, 9)}))
