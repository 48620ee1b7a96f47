"""Models by their tasks. The sides and the head of each are those that its configuration names."""

from universal_transformer.models.frame_target import FrameTarget
from universal_transformer.models.heads import head_of
from universal_transformer.models.model import Model, Parts
from universal_transformer.models.source import SourceSide
from universal_transformer.models.target import TargetSide


class EncoderDecoder(Model):
    """Source to target tokens: the paper's model.

    >>> model = EncoderDecoder(ModelConfig(vocabulary=VocabularyConfig(size=100)))
    >>> output = model(source, target)  # teacher forced: logits [batch, target, vocabulary]
    """

    architecture, pipeline = "encoder_decoder", "text2text-generation"


class FrameGenerator(Model):
    """A source to frames, such as those of a sound: ``outputs.kind="frames"``.

    >>> output = model(source, frames)  # teacher forced
    >>> output.frames.shape == frames.shape
    True
    """

    architecture, writes = "encoder_decoder", "frames"


class LanguageModel(Model):
    """Predict every token from those to its left."""

    architecture, pipeline = "language_model", "text-generation"


class Classifier(Model):
    """A source to one of ``num_classes``."""

    architecture, writes, pipeline = "classifier", "classes", "text-classification"


class MultiLabelClassifier(Model):
    """A source to those of ``num_classes`` labels that apply: ``outputs.kind="labels"``.

    >>> output = model(source)
    >>> probability = output.logits.sigmoid()  # [batch, label]
    """

    architecture, writes, pipeline = "classifier", "labels", "text-classification"


class Tagger(Model):
    """A source to one of ``num_classes`` for each position. Class 0 is that of a position without a class."""

    architecture, writes, pipeline = "tagger", "classes", "token-classification"


PARTS = Parts(
    SourceSide,
    lambda config, source: (FrameTarget if config.writes == "frames" else TargetSide)(config, source),
    lambda config: head_of(config, config.sizes.width, pooling=config.outputs.pooling),
)
"""The Universal Transformer and the Transformer."""


CLASSES: dict[tuple[str, str], type[Model]] = {
    (kind.architecture, kind.writes): kind
    for kind in (EncoderDecoder, FrameGenerator, LanguageModel, Classifier, MultiLabelClassifier, Tagger)
}
"""What a model reads and what it writes -> its class."""
