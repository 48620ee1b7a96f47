"""Text to trees, summaries and records, and translation from English to German (table 7)."""

from __future__ import annotations

from universal_transformer.presets import SIZES
from universal_transformer.recipes.start import named, start
from universal_transformer.recipes.users_files import PAIRS
from universal_transformer.tasks import PairsData, ParsingData, TranslationData
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced

_GENERATED = {
    "model.coordinates.position": "distance",
    "training.max_updates": 1500,
    "training.learning_rate": 1.5e-3,
    "training.validate_every": 500,
}


def parsing() -> RunConfig:
    """Trees of sentences, generated from a grammar, or of your own treebank: --data.train FILE."""
    return start("parsing", ParsingData(), _GENERATED, {"training.max_updates": 3000})


def summaries() -> RunConfig:
    """Summaries of texts: --data.train FILE (as for pairs); without it, synthetic reports and their summaries."""
    data = PairsData(vocabulary_size=4000, metric="rouge", synthetic="summaries")
    return start("summaries", data, _GENERATED)


def records() -> RunConfig:
    """Fields of a text: --data.train FILE (as for pairs); without it, synthetic orders and their records."""
    data = PairsData(vocabulary_size=1000, metric="sequence", synthetic="records")
    return start("records", data, _GENERATED)


def multi30k() -> RunConfig:
    """Multi30k, English to German image descriptions (`ut data fetch multi30k`)."""
    return start("multi30k", TranslationData(vocabulary_size=4000), PAIRS, {"training.precision": "bfloat16"})


def wmt14() -> RunConfig:
    """WMT14 English to German from your own files, in the size of the paper's base model (table 7)."""
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


def wmt14_ut_small() -> RunConfig:
    """WMT14 English to German from your own files, in the size of the paper's small model (table 7)."""
    return replaced(wmt14(), {"recipe": "wmt14-ut-small", "model.sizes": SIZES["small"]})


MAIN = named(parsing, summaries, records, multi30k)
OF_TABLES = named(wmt14, wmt14_ut_small)
