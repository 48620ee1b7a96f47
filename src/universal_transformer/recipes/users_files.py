"""Your own files: pairs of texts, text, labelled texts, tagged sentences.

The defaults were chosen by measurements: ``results/studies/own_file_defaults.md``, ``results/studies/public_data.md``,
``results/studies/text_blocks.md``.
"""

from universal_transformer.recipes.start import named, start
from universal_transformer.tasks import LabelledData, PairsData, TaggedData, TextData
from universal_transformer.training.run_config import RunConfig

_SHORT = {"training.batch_tokens": 2048, "training.save_minutes": 5.0}
_WRITER = {
    "model.step.norm": "rms",
    "model.transition.kind": "swiglu",
    "model.sizes.filter_width": 341,  # as many parameters as two matrices of 512
    "model.coordinates.position": "rotary",
}
_ENCODER = {
    "model.coordinates.position": "distance",
    "training.learning_rate": 1e-3,
    "training.validate_every": 200,
    "training.patience": 10,
}
PAIRS = {
    "model.sizes.width": 192,
    "model.sizes.filter_width": 768,
    "model.coordinates.position": "distance",
    "training.learning_rate": 1.5e-3,
    "training.label_smoothing": 0.1,
    "training.validate_every": 500,
    "training.average_checkpoints": 3,
}


def pairs() -> RunConfig:
    """Your own pairs of source and target texts: --data.train FILE (TSV, JSON lines, or two parallel files)."""
    return start("pairs", PairsData(vocabulary_size=4000), PAIRS)


def text() -> RunConfig:
    """A language model on your own text: --data.train FILE (UTF-8, one sentence, verse or paragraph a line)."""
    return start("text", TextData(block_length=128), {"model.architecture": "language_model"}, _SHORT, _WRITER)


def labelled() -> RunConfig:
    """Texts with a label each, from your own file: --data.train FILE (`text<TAB>label` or JSON lines)."""
    # with a dropout of 0.1 two texts are hardly compared, and 0.2 does not help one text: notebook/defaults.md
    classifier = {"model.architecture": "classifier", "model.step.dropout": 0.0}
    return start("labelled", LabelledData(), classifier, _SHORT, _ENCODER)


def tagged() -> RunConfig:
    """Sentences with a tag for each token, from your own file: --data.train FILE (CoNLL columns)."""
    return start("tagged", TaggedData(), {"model.architecture": "tagger", "model.step.dropout": 0.2}, _SHORT, _ENCODER)


MAIN = named(pairs, text, labelled, tagged)
