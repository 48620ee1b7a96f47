"""Text to trees, summaries, records and treatments."""

from universal_transformer.recipes.start import named, start
from universal_transformer.tasks import PairsData, ParsingData
from universal_transformer.training.run_config import RunConfig

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
    return start("summaries", PairsData(vocabulary_size=4000, metric="rouge", synthetic="summaries"), _GENERATED)


def records() -> RunConfig:
    """Fields of a text: --data.train FILE (as for pairs); without it, synthetic orders and their records."""
    return start("records", PairsData(vocabulary_size=1000, metric="sequence", synthetic="records"), _GENERATED)


def treatments() -> RunConfig:
    """Treatments of a patient's record: --data.train FILE (as for pairs); without it, synthetic records of invented
    patients. No medical device.
    """
    return start("treatments", PairsData(vocabulary_size=1000, metric="sequence", synthetic="treatments"), _GENERATED)


MAIN = named(parsing, summaries, records, treatments)
