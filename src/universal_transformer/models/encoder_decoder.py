"""The encoder-decoder: the paper's model (Figure 4)."""

from universal_transformer.axes import Int, Tensor
from universal_transformer.models.config import ModelConfig, refusal
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import RasterInput, TokenInput, check_pairs
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.positions import check_positions
from universal_transformer.models.roles import AnyEncoderDecoder, check_threshold_applies
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.models.target import TargetSide
from universal_transformer.models.two_sides import TwoSides
from universal_transformer.nn.config import Exit
from universal_transformer.nn.trace import NOTHING, Kept


class EncoderDecoder(TwoSides, AnyEncoderDecoder):
    """A source to target tokens.

    >>> model = EncoderDecoder(ModelConfig(vocabulary=VocabularyConfig(size=100)))
    >>> logits = model(source, target).logits  # teacher forced: [batch, target, vocabulary]
    """

    config: ModelConfig
    target: TargetSide

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        if config.outputs.kind == "frames":
            raise refusal("outputs.kind", "frames", "an EncoderDecoder writes tokens; build a FrameGenerator")
        self.source = SourceSide(config)
        embedding, size = self.source.input, config.vocabulary.target_size
        if config.outputs.kind == "raster":
            embedding = RasterInput(config, config.sizes.width, size=size)
        elif size or not isinstance(embedding, TokenInput):
            embedding = TokenInput(config, config.sizes.width, size=size or config.vocabulary.size)
        self.target = TargetSide(config, embedding=embedding, cross_attention=True)
        initialise(self)

    def forward(
        self,
        source: Source,
        target: Int[Tensor, "batch target"],
        *,
        source_positions: Int[Tensor, "#batch source"] | None = None,
        target_positions: Int[Tensor, "#batch target"] | None = None,
        target_space: int = 0,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
        keep: Kept = NOTHING,
    ) -> ModelOutput:
        """Logits for every label of ``target`` (end token included, padded on the right) given those to its left;
        with ``keep.states`` also those of the decoder's states after each step.

        With ``exit`` each position stops by itself. Only the decoder stops by what it predicts: no head reads the
        states of the encoder, which then has its trained depth.

        Raises UserError for shapes, types and options that do not fit, and on a CPU for ids outside of the vocabulary.
        """
        check_pairs(source, target, config=self.config)
        self.source.check_positions(source_positions, of=source)
        check_positions(target_positions, of=target, name="target_positions")
        check_threshold_applies(halting_threshold, config=self.config)
        source_positions, target_positions = self.draw_positions(
            source, source_positions, target=target.shape[1], target_positions=target_positions
        )
        projected, encoder = self.encode(
            source,
            positions=source_positions,
            target_space=target_space,
            depth=self.source_depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
            keep=keep,
        )
        logits, decoder = self.target(
            target,
            source=projected,
            positions=target_positions,
            depth=self.target.depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
            keep=keep,
        )
        every = None if decoder.states is None else self.target.logits(decoder.states)
        return ModelOutput(logits, encoder, decoder, step_logits=every)
