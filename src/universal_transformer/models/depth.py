"""From a configuration to the recurrence of one side of a model."""

import dataclasses
from pkgutil import resolve_name
from typing import Any

from torch import nn

from universal_transformer.execution.compaction import install
from universal_transformer.models.components import NORMS, POSITIONS, TRANSITIONS
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.models.positions.rotary import RotaryCrossAttention
from universal_transformer.models.positions.sinusoids import FromEnd
from universal_transformer.models.positions.tables import LearnedSteps
from universal_transformer.nn.attention import CrossAttention, SelfAttention
from universal_transformer.nn.block import Block, PostNorm
from universal_transformer.nn.context import Depth
from universal_transformer.nn.coordinates import Coordinates, PositionEncoder, StepEncoder
from universal_transformer.nn.halting import ACT, FixedDepth, Rule
from universal_transformer.nn.recurrence import Recurrence
from universal_transformer.rules import HALTING_RULES, stops_at
from universal_transformer.rules.length import AsManyStepsAsPositions

USUAL_LENGTH = 16
"""The number of steps that the initial bias of halting is for, where each sequence has its own."""


class RecurrenceBuilder:
    """The parts of the recurrence of one side: a configuration names its builder, and a subclass overrides parts.

    ``decoder``: the side. ``cross_attention``: whether its blocks attend to a source.
    """

    def __init__(self, config: ModelConfig, *, decoder: bool, cross_attention: bool = False) -> None:
        self.config, self.decoder, self.cross_attention = config, decoder, cross_attention
        self.max_steps = config.max_steps_of(decoder=decoder)

    def build(self) -> Recurrence:
        config, step = self.config, self.config.step
        norm: type[PostNorm] = resolve_name(NORMS[step.norm])
        coordinates, rule = self.coordinates(), self.rule()
        attention = coordinates.position.self_attention
        made = self.recurrence(
            coordinates,
            [self.block(attention) for _ in range(step.blocks * (1 if step.tied else self.max_steps))],
            depth=Depth(rule, self.max_steps, config.depth.min_steps, stops_at(config.halting)),
            blocks_per_step=step.blocks,
            closing_norm=norm.normalise(config.sizes.width, eps=step.norm_epsilon) if norm.closes else None,
            residual=step.residual,
        )
        made.checkpointed = config.execution.activation_checkpointing
        install(made, config.execution.halting_execution)
        return made

    def recurrence(self, coordinates: Coordinates, blocks: list[Block], **options: Any) -> Recurrence:
        return Recurrence(coordinates, blocks, **options)

    def block(self, self_attention: type[SelfAttention]) -> Block:
        """One block of a step, with the attention in which its positions are seen."""
        sizes, attention = self.config.sizes, self.config.source_attention
        cross: CrossAttention | None = None
        if self.cross_attention:
            special = attention.rotary_source or attention.source_sink
            cross = (RotaryCrossAttention if special else CrossAttention)(sizes, attention)
        return Block(self_attention(sizes, attention), self.transition(), norm=self.norm, cross_attention=cross)

    def norm(self) -> PostNorm:
        step = self.config.step
        sublayers = (3 if self.cross_attention else 2) * step.blocks * self.max_steps
        return resolve_name(NORMS[step.norm])(self.config.sizes.width, step, sublayers=sublayers)

    def transition(self) -> nn.Module:
        chosen = self.config.transition
        return resolve_name(TRANSITIONS[chosen.kind])(self.config.sizes, chosen, causal=self.decoder)

    def rule(self) -> Rule:
        """The rule by which positions of this side stop.

        A classifier answers once, so that with ponder all positions of a sequence have one distribution.
        """
        config, chosen = self.config, self.config.halting
        by_length = config.by_length(decoder=self.decoder)
        if not config.halts_in(decoder=self.decoder):
            return AsManyStepsAsPositions() if by_length else FixedDepth()
        if config.expects_loss and config.architecture == "classifier":
            chosen = dataclasses.replace(chosen, scope="sequence")
        kind: type[ACT] = resolve_name(HALTING_RULES[chosen.rule])
        return kind(config.sizes.width, chosen, max_steps=USUAL_LENGTH if by_length else self.max_steps)

    def coordinates(self) -> Coordinates:
        every_step = self.config.coordinates.injection == "every_step"
        return Coordinates(self.position(), self.step(self.config.sizes.width), every_step=every_step)

    def position(self) -> PositionEncoder:
        """Positions of this side; only a source is counted from its end (decision D12)."""
        config, chosen = self.config, self.config.coordinates
        position: PositionEncoder = resolve_name(POSITIONS[chosen.position]).build(config, decoder=self.decoder)
        if chosen.from_end and not self.decoder and not config.source_attention.rotary_source:
            return FromEnd(position)
        return position

    def step(self, width: int, *, scale: float = 1.0) -> StepEncoder | None:
        """Step signals of ``width`` channels; ``scale`` multiplies a learned table."""
        chosen = self.config.coordinates
        if chosen.step == "learned":
            return LearnedSteps(width, rows=self.max_steps, scale=scale)
        return None if chosen.step == "none" else StepEncoder(width, layout=chosen.layout)


def recurrence(config: ModelConfig, *, decoder: bool, cross_attention: bool = False) -> Recurrence:
    return resolve_name(config.builder)(config, decoder=decoder, cross_attention=cross_attention).build()
