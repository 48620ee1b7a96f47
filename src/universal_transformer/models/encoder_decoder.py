"""The encoder-decoder: the paper's model (Figure 4)."""

import torch

from universal_transformer.axes import Int, Padding, Positions, States, Tensor
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.initialise import initialise
from universal_transformer.models.inputs import RasterInput, TokenInput, check_pairs, check_source
from universal_transformer.models.outputs import ModelOutput
from universal_transformer.models.positions import check_positions, draw_positions, source_angles
from universal_transformer.models.roles import AnyEncoderDecoder, check_threshold_applies
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.models.target import DecoderState, TargetSide
from universal_transformer.nn.attention import ProjectedSource
from universal_transformer.nn.config import Exit
from universal_transformer.nn.exits import ExitUnit
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.trace import NOTHING, Kept


class EncoderDecoder(AnyEncoderDecoder):
    """A source to target tokens.

    >>> model = EncoderDecoder(ModelConfig(vocabulary=VocabularyConfig(size=100)))
    >>> logits = model(source, target).logits  # teacher forced: [batch, target, vocabulary]
    """

    config: ModelConfig
    target: TargetSide

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.source = SourceSide(config)
        embedding, size = self.source.input, config.vocabulary.target_size
        if config.outputs.kind == "raster":
            embedding = RasterInput(config, config.sizes.width, size=size)
        elif size or not isinstance(embedding, TokenInput):
            embedding = TokenInput(config, config.sizes.width, size=size or config.vocabulary.size)
        self.target = TargetSide(config, embedding=embedding, cross_attention=True)
        initialise(self)

    def _draw(self, source: int, target: int, *, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Random positions of both sides, from one draw unless ``independent_offsets`` (decision D3)."""
        config = self.config.coordinates
        if config.independent_offsets:
            drawn = draw_positions(config, batch, source, device=device)
            return drawn, draw_positions(config, batch, target, device=device)
        drawn = draw_positions(config, batch, max(source, target), device=device)
        return drawn[:, :source], drawn[:, :target]

    def _project_source(
        self, states: States, *, positions: Positions, padding: Padding | None
    ) -> list[ProjectedSource]:
        """Keys and values of the source, for the target side."""
        recurrence, rotary = self.target.recurrence, None
        if self.config.source_attention.rotary_source:
            from_end = self.config.coordinates.from_end
            rotary = source_angles(recurrence.coordinates, positions, padding=padding, from_end=from_end)
        return recurrence.project_source(states, padding=padding, rotary=rotary)

    def _source_depth(self, *, max_steps: int | None, threshold: float | None, exit: Exit | None) -> Depth:
        """The depth of the encoder, which an exit that reads the output does not concern."""
        unit = None if exit is None or exit.reads_output else ExitUnit(exit)
        return self.source.recurrence.depth(max_steps=max_steps, threshold=threshold, exit=unit)

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
        given = source_positions is not None and target_positions is not None
        if self.training and self.config.coordinates.offsets != "none" and not given:
            rows, length = self.source.input.padding(source).shape
            drawn = self._draw(length, target.shape[1], batch=rows, device=source.device)
            source_positions = drawn[0] if source_positions is None else source_positions
            target_positions = drawn[1] if target_positions is None else target_positions
        source_positions = self.source.positions(source, drawn=source_positions)
        states, padding, encoder = self.source(
            source,
            positions=source_positions,
            target_space=target_space,
            depth=self._source_depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
            keep=Kept(attention=keep.attention),
        )
        logits, decoder = self.target(
            target,
            source=self._project_source(states, positions=source_positions, padding=padding),
            positions=target_positions,
            depth=self.target.depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
            keep=keep,
        )
        every = None if decoder.states is None else self.target.logits(decoder.states)
        return ModelOutput(logits, encoder, decoder, step_logits=every)

    def start(
        self,
        source: Source,
        *,
        capacity: int,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
    ) -> DecoderState:
        """Encode ``source`` and return the state for up to ``capacity`` tokens (the start token included)."""
        check_source(source, config=self.config)
        check_threshold_applies(halting_threshold, config=self.config)
        positions = self.source.positions(source)
        depth = self._source_depth(max_steps=max_steps, threshold=halting_threshold, exit=exit)
        states, padding, trace = self.source(source, positions=positions, depth=depth)
        state = self.target.start(
            batch=source.shape[0],
            capacity=capacity,
            source=self._project_source(states, positions=positions, padding=padding),
            depth=self.target.depth(max_steps=max_steps, threshold=halting_threshold, exit=exit),
        )
        state.trace = trace
        return state
