"""Language models: subject-verb agreement (table 2) and LAMBADA (table 3)."""

from __future__ import annotations

from universal_transformer.recipes.start import family, named, start
from universal_transformer.tasks import AgreementData, LambadaData, ReadingData
from universal_transformer.training.config import RunConfig
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


MAIN = named(agreement, lambada, lambada_reading)
_SUMMARY = "The last word of a passage, by a language model on novels: Universal Transformer of {} steps (table 3)."
OF_TABLES = family(_of_steps, {f"lambada-ut-{steps}": _SUMMARY.format(steps) for steps in (8, 9)})
