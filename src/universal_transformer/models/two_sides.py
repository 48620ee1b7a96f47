"""What models with an encoder and a decoder have in common: positions, depth, and the encoded source."""

import torch

from universal_transformer.axes import Int, Padding, Positions, States, Tensor
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.decoder import DecoderSide, DecoderState
from universal_transformer.models.inputs import check_source
from universal_transformer.models.positions import draw_positions, source_angles
from universal_transformer.models.roles import check_threshold_applies
from universal_transformer.models.source import Source, SourceSide
from universal_transformer.nn.attention import ProjectedSource
from universal_transformer.nn.config import Exit
from universal_transformer.nn.exits import ExitUnit, check_exit
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.trace import NOTHING, Kept, Trace


class TwoSides:
    """A source that is encoded, and a target that is written with attention to it."""

    config: ModelConfig
    source: SourceSide
    target: DecoderSide
    training: bool

    def draw_positions(
        self,
        source: Source,
        source_positions: Int[Tensor, "#batch source"] | None,
        *,
        target: int,
        target_positions: Int[Tensor, "#batch target"] | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Positions of both sides to train on, where some are drawn (``coordinates.offsets``); else those given.

        Both sides have one draw unless ``independent_offsets`` (decision D3). ``target`` counts positions.
        """
        config = self.config.coordinates
        given = source_positions is not None and target_positions is not None
        if not self.training or config.offsets == "none" or given:
            return source_positions, target_positions
        rows, length = self.source.input.padding(source).shape
        drawn = self._draw(length, target, batch=rows, device=source.device)
        return (
            drawn[0] if source_positions is None else source_positions,
            drawn[1] if target_positions is None else target_positions,
        )

    def _draw(self, source: int, target: int, *, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        config = self.config.coordinates
        if config.independent_offsets:
            drawn = draw_positions(config, batch, source, device=device)
            return drawn, draw_positions(config, batch, target, device=device)
        drawn = draw_positions(config, batch, max(source, target), device=device)
        return drawn[:, :source], drawn[:, :target]

    def encode(
        self,
        source: Source,
        *,
        positions: Positions | None = None,
        target_space: int = 0,
        depth: Depth | None = None,
        keep: Kept = NOTHING,
    ) -> tuple[list[ProjectedSource], Trace]:
        """Keys and values of the source for the target side, and the trace of the encoder."""
        positions = self.source.positions(source, drawn=positions)
        states, padding, trace = self.source(
            source,
            positions=positions,
            target_space=target_space,
            depth=depth,
            keep=Kept(attention=keep.attention),
        )
        return self._project_source(states, positions=positions, padding=padding), trace

    def _project_source(
        self, states: States, *, positions: Positions, padding: Padding | None
    ) -> list[ProjectedSource]:
        recurrence, rotary = self.target.recurrence, None
        if self.config.source_attention.rotary_source:
            from_end = self.config.coordinates.from_end
            rotary = source_angles(recurrence.coordinates, positions, padding=padding, from_end=from_end)
        return recurrence.project_source(states, padding=padding, rotary=rotary)

    def source_depth(self, *, max_steps: int | None, threshold: float | None, exit: Exit | None) -> Depth:
        """The depth of the encoder, which an exit that reads the output does not concern."""
        unit = None if exit is None or check_exit(exit).reads_output else ExitUnit(exit)
        return self.source.recurrence.depth(max_steps=max_steps, threshold=threshold, exit=unit)

    def start(
        self,
        source: Source,
        *,
        capacity: int,
        target_space: int = 0,
        max_steps: int | None = None,
        halting_threshold: float | None = None,
        exit: Exit | None = None,
    ) -> DecoderState:
        """Encode ``source`` and return the state for up to ``capacity`` positions (that of the start included).

        Raises UserError for a source of another type or shape than the model reads, for ``max_steps``,
        ``halting_threshold`` and ``exit`` that do not fit it, and where the decoder depends on later positions
        (``halting.scope="sequence"``), so that it cannot generate.
        """
        check_source(source, config=self.config)
        check_threshold_applies(halting_threshold, config=self.config)
        of_source = self.source_depth(max_steps=max_steps, threshold=halting_threshold, exit=exit)
        projected, trace = self.encode(source, target_space=target_space, depth=of_source)
        depth = self.target.depth(max_steps=max_steps, threshold=halting_threshold, exit=exit)
        state = self.target.start(batch=source.shape[0], capacity=capacity, source=projected, depth=depth)
        state.trace = trace
        return state
