"""From a configuration to the recurrence of one side of a model."""

from dataclasses import replace

from torch import nn

from universal_transformer.execution.install import install
from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.block import Block
from universal_transformer.nn.config import (
    AttentionConfig,
    CoordinatesConfig,
    HaltingConfig,
    Sizes,
    StepConfig,
    Tensor2TensorConfig,
    TransitionConfig,
)
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.halting import HaltingUnit
from universal_transformer.nn.recurrence import Depth, PlainLayers, Recurrence


def recurrence(config: ModelConfig, *, decoder: bool, cross_attention: bool = False) -> Recurrence:
    """The encoder, or the decoder with or without attention to a source."""
    sizes = Sizes(width=config.width, filter_width=config.filter_width, num_heads=config.num_heads)
    step = StepConfig(norm=config.norm, norm_epsilon=config.norm_epsilon, dropout=config.dropout, tied=config.tied, blocks=config.layers_per_step)
    attention = AttentionConfig(bias=config.attention_bias, dropout=config.attention_dropout, rotary_source=config.rotary_source, source_sink=config.source_sink)
    transition = TransitionConfig(kind=config.transition, dropout=config.transition_dropout)
    coordinates = CoordinatesConfig(layout=config.coordinate_layout, position=config.position_coordinates, step=config.step_coordinates, injection=config.position_injection, max_positions=config.max_positions,
        from_end=config.end_coordinates and not decoder and not config.rotary_source)
    t2t = Tensor2TensorConfig(scale_step_table=config.scale_step_table, concatenate_coordinates=config.combine_coordinates == "concatenate", shift_positions_by_step=config.position_start == "step")
    halting = HaltingConfig(bias=float(config.halting_bias), scope=config.halting_scope, threshold=config.halting_threshold, remainder_at_cap=config.remainder_at_cap, output=config.halting_output, state=config.halting_state)

    def blocks(count: int) -> list[Block]:
        return [
            Block(
                sizes,
                step=step,
                attention=attention,
                transition=transition,
                decoder=decoder,
                cross_attention=cross_attention,
                zero_padding=config.zero_padding and not decoder,
            )
            for _ in range(count)
        ]

    plain = None
    inside = coordinates.injection == "every_step" and coordinates.position == "sinusoidal"
    # positions before plain layers, when the recurrence adds its own inside the loop (as tensor2tensor does)
    plain_coordinates = None
    if inside and (config.plain_layers_before or config.plain_layers_after):
        plain_coordinates = Coordinates(
            sizes, CoordinatesConfig(layout=coordinates.layout, step="none", injection="input")
        )
    made = Recurrence(
        Coordinates(sizes, coordinates, max_steps=config.max_steps, t2t=t2t),
        blocks(config.layers_per_step * (1 if config.tied else config.max_steps)),
        depth=Depth(config.max_steps, 1, config.halting_threshold),
        step=step,
        decoder=decoder,
        halting=HaltingUnit(config.width, halting) if config.halting else None,
        closing_norm=nn.LayerNorm(config.width, eps=config.norm_epsilon) if config.norm == "pre" else None,
        plain=PlainLayers(
            before=blocks(config.plain_layers_before),
            after=blocks(config.plain_layers_after),
            coordinates=plain_coordinates,
        ),
        checkpointed=config.activation_checkpointing,
    )
    install(made, config.recurrence if config.recurrence == "masked" else "auto")
    return made
