"""Universal Transformers and Transformers by their tasks: the sides and the head of each, from a configuration."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from universal_transformer.axes import Tensor
from universal_transformer.models.config import ModelConfig, refusal
from universal_transformer.models.frame_target import FrameTarget
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import RasterInput, TokenInput
from universal_transformer.models.model import ClassHead, Model, TagHead
from universal_transformer.models.pointer import Pointer
from universal_transformer.models.positions.numbering import check_positions, draw_positions
from universal_transformer.models.source import SourceSide
from universal_transformer.models.target import TargetSide


class Universal(Model):
    """What the models of this module have in common: positions that are drawn in training (decision D3)."""

    config: ModelConfig
    source_side: ClassVar[type[SourceSide]] = SourceSide
    target_side: ClassVar[type[TargetSide]] = TargetSide

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.build(self.config)
        initialise(self)

    def build(self, config: ModelConfig) -> None:
        """Make the sides and the head."""
        raise NotImplementedError

    def positions(
        self, source: Tensor | None, target: Tensor | None, given: tuple[Tensor | None, Tensor | None]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Positions of both sides to train on, where some are drawn (``coordinates.offsets``); else those given.

        Both sides have one draw unless ``independent_offsets``.
        """
        inputs = {"source": source, "target": target}
        lengths = [None if ids is None else getattr(self, name).length(ids) for name, ids in inputs.items()]
        some = source if source is not None else target
        assert some is not None
        rows, device, config = some.shape[0], some.device, self.config.coordinates
        for name, length, positions in zip(inputs, lengths, given, strict=True):
            if length is not None and positions is not None:
                check_positions(positions, rows=rows, length=length, name=f"{name}_positions")
        missing = any(n is not None and positions is None for n, positions in zip(lengths, given, strict=True))
        if not self.training or config.offsets == "none" or not missing:
            return given
        if config.independent_offsets:
            drawn = [None if n is None else draw_positions(config, rows, n, device=device) for n in lengths]
        else:
            both = draw_positions(config, rows, max(n for n in lengths if n is not None), device=device)
            drawn = [None if n is None else both[:, :n] for n in lengths]
        first, second = (new if old is None else old for new, old in zip(drawn, given, strict=True))
        return first, second


class EncoderDecoder(Universal):
    """Source to target tokens: the paper's model.

    >>> model = EncoderDecoder(ModelConfig(vocabulary=VocabularyConfig(size=100)))
    >>> output = model(source, target)  # teacher forced: logits [batch, target, vocabulary]
    """

    architecture = "encoder_decoder"
    target: TargetSide

    def build(self, config: ModelConfig) -> None:
        width = config.sizes.width
        if config.outputs.kind == "frames":
            raise refusal("outputs.kind", "frames", "an EncoderDecoder writes tokens; build a FrameGenerator")
        self.source = self.source_side(config)
        size = config.vocabulary.target_size
        if config.outputs.kind == "raster":
            assert size is not None
            assert config.outputs.columns is not None
            embedding: TokenInput = RasterInput(config, width, size=size, columns=config.outputs.columns)
        else:
            shared = None if size or not isinstance(self.source.input, TokenInput) else self.source.input
            embedding = TokenInput(config, width, size=size) if shared is None else shared.sharing()
        self.target = self.target_side(config, embedding=embedding, cross_attention=True)


class FrameGenerator(Universal):
    """A source to frames, such as those of a sound: ``outputs.kind="frames"``.

    >>> output = model(source, frames)  # teacher forced
    >>> output.frames.shape == frames.shape
    True
    """

    architecture = "encoder_decoder"
    writes = "frames"
    target: FrameTarget

    def build(self, config: ModelConfig) -> None:
        if config.outputs.kind != "frames":
            raise refusal("outputs.kind", config.outputs.kind, 'a FrameGenerator needs "frames"')
        self.source, self.target = self.source_side(config), FrameTarget(config)


class LanguageModel(Universal):
    """Predict every token from those to its left."""

    architecture = "language_model"
    target: TargetSide

    def build(self, config: ModelConfig) -> None:
        embedding = TokenInput(config, config.sizes.width)
        self.target = self.target_side(config, embedding=embedding, cross_attention=False)


class Classifier(Universal):
    """A source to one of ``num_classes``."""

    architecture, writes = "classifier", "classes"

    def build(self, config: ModelConfig) -> None:
        width, classes = config.sizes.width, self.num_classes
        self.source = self.source_side(config)
        self.head: nn.Module
        if config.outputs.pooling == "pointer":
            self.head = Pointer(width, num_classes=classes, start_id=config.start_id)
        else:
            self.head = ClassHead(width, classes, pooling=config.outputs.pooling)


class Tagger(Universal):
    """A source to one of ``num_classes`` for each position. Class 0 is that of a position without a class."""

    architecture, writes = "tagger", "classes"

    def build(self, config: ModelConfig) -> None:
        self.source = self.source_side(config)
        self.head = TagHead(config.sizes.width, self.num_classes)
