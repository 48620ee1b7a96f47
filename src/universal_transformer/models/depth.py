"""From a configuration to the recurrence of one side of a model."""

from torch import nn

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.block import Block
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.halting import HaltingUnit
from universal_transformer.nn.recurrence import Recurrence


def _block(config: ModelConfig, *, decoder: bool, cross_attention: bool) -> Block:
    return Block(
        config.width,
        num_heads=config.num_heads,
        filter_width=config.filter_width,
        decoder=decoder,
        cross_attention=cross_attention,
        norm=config.norm,
        norm_epsilon=config.norm_epsilon,
        attention_bias=config.attention_bias,
        transition=config.transition,
        zero_padding=config.zero_padding and not decoder,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        transition_dropout=config.transition_dropout,
        rotary_source=config.rotary_source,
        source_sink=config.source_sink,
    )


def _coordinates(config: ModelConfig, *, decoder: bool) -> Coordinates:
    return Coordinates(
        config.width,
        num_heads=config.num_heads,
        layout=config.coordinate_layout,
        position=config.position_coordinates,
        step=config.step_coordinates,
        max_positions=config.max_positions,
        max_steps=config.max_steps,
        scale_step_table=config.scale_step_table,
        concatenate=config.combine_coordinates == "concatenate",
        every_step=config.position_injection == "every_step",
        shift_by_step=config.position_start == "step",
        end=config.end_coordinates and not decoder and not config.rotary_source,
    )


def _plain_coordinates(config: ModelConfig) -> Coordinates | None:
    """Positions in front of plain layers, when the recurrence has its own inside the loop (as t2t does it)."""
    inside = config.position_injection == "every_step" and config.position_coordinates == "sinusoidal"
    if not inside or not (config.plain_layers_before or config.plain_layers_after):
        return None
    return Coordinates(
        config.width,
        num_heads=config.num_heads,
        layout=config.coordinate_layout,
        step="none",
        every_step=False,
    )


def recurrence(config: ModelConfig, *, decoder: bool, cross_attention: bool = False) -> Recurrence:
    """The encoder, or the decoder with or without attention to a source."""

    def blocks(count: int) -> list[Block]:
        return [_block(config, decoder=decoder, cross_attention=cross_attention) for _ in range(count)]

    halting = None
    if config.halting:
        halting = HaltingUnit(config.width, bias=float(config.halting_bias), scope=config.halting_scope)
    closing = nn.LayerNorm(config.width, eps=config.norm_epsilon) if config.norm == "pre" else None
    return Recurrence(
        _coordinates(config, decoder=decoder),
        blocks(config.layers_per_step * (1 if config.tied else config.max_steps)),
        layers_per_step=config.layers_per_step,
        tied=config.tied,
        max_steps=config.max_steps,
        decoder=decoder,
        before=blocks(config.plain_layers_before),
        after=blocks(config.plain_layers_after),
        plain_coordinates=_plain_coordinates(config),
        closing_norm=closing,
        halting=halting,
        threshold=config.halting_threshold,
        remainder_at_cap=config.remainder_at_cap,
        output=config.halting_output,
        state=config.halting_state,
        form=config.recurrence,
        checkpointed=config.activation_checkpointing,
    )
