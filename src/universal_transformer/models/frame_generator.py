"""The encoder-decoder that writes frames, such as those of a sound, in place of tokens."""

from universal_transformer.errors import UserError
from universal_transformer.models.config import ModelConfig, refusal
from universal_transformer.models.decoder import DecoderState
from universal_transformer.models.frame_target import Before, FrameTarget, Masks, Stops, Written
from universal_transformer.models.frames import check_frames
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import check_source
from universal_transformer.models.outputs import FrameOutput
from universal_transformer.models.roles import AnyFrameGenerator, check_threshold_applies
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.models.two_sides import TwoSides
from universal_transformer.nn.config import Exit
from universal_transformer.nn.trace import NOTHING, Kept


class FrameGenerator(TwoSides, AnyFrameGenerator):
    """A source to frames: ``outputs.kind="frames"``.

    >>> output = model(source, frames)  # teacher forced
    >>> output.frames.shape == frames.shape
    True
    """

    config: ModelConfig
    target: FrameTarget

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        if config.outputs.kind != "frames":
            raise refusal("outputs.kind", config.outputs.kind, 'a FrameGenerator needs "frames"')
        self.source = SourceSide(config)
        self.target = FrameTarget(config)
        initialise(self)

    def forward(
        self,
        source: Source,
        target: Written,
        *,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
        keep: Kept = NOTHING,
    ) -> FrameOutput:
        """Every frame of ``target`` (padded on the right with NaN) and the stop logit of every position, given the
        frames of the positions before.

        Raises UserError for shapes, types and options that do not fit, for numbers that are not finite, and on a CPU
        for ids outside of the vocabulary.
        """
        check_source(source, config=self.config)
        check_frames(target, features=self.target.features, name="target")
        if source.shape[0] != target.shape[0]:
            raise UserError(f"{source.shape[0]} sources, but {target.shape[0]} targets: row n of one belongs to row n")
        check_threshold_applies(halting_threshold, config=self.config)
        count = -(-target.shape[1] // self.target.stride)
        source_positions, target_positions = self.draw_positions(source, None, target=count, target_positions=None)
        projected, encoder = self.encode(
            source,
            positions=source_positions,
            depth=self.source_depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
            keep=keep,
        )
        frames, stop, decoder = self.target(
            target,
            source=projected,
            positions=target_positions,
            depth=self.target.depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
            keep=keep,
        )
        return FrameOutput(frames, stop, self.target.stride, encoder, decoder)

    def advance(self, before: Before, state: DecoderState, *, masks: Masks | None = None) -> tuple[Written, Stops]:
        """The frames of new positions and their stop logits, given the frame before each (`FrameTarget.advance`)."""
        return self.target.advance(before, state, masks=masks)
