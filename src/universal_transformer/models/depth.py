"""From a configuration to the recurrence of one side of a model."""

from torch import nn

from universal_transformer.models.config import ModelConfig
from universal_transformer.nn.block import Block
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.halting import HaltingUnit
from universal_transformer.nn.recurrence import Recurrence


def _block(config: ModelConfig, *, decoder: bool, cross_attention: bool) -> Block:
    return Block(
        config.sizes.width,
        num_heads=config.sizes.num_heads,
        filter_width=config.sizes.filter_width,
        decoder=decoder,
        cross_attention=cross_attention,
        norm=config.step.norm,
        norm_epsilon=config.step.norm_epsilon,
        attention_bias=config.attention.bias,
        transition=config.transition.kind,  # type: ignore[arg-type]  # lead: other transitions
        zero_padding=config.tensor2tensor.zero_padding and not decoder,
        dropout=config.step.dropout,
        attention_dropout=config.attention.dropout,
        transition_dropout=config.transition.dropout,
        rotary_source=config.attention.rotary_source,
        source_sink=config.attention.source_sink,
    )


def _coordinates(config: ModelConfig, *, decoder: bool) -> Coordinates:
    chosen = config.coordinates
    return Coordinates(
        config.sizes.width,
        num_heads=config.sizes.num_heads,
        layout=chosen.layout,
        position=chosen.position,
        step=chosen.step,
        max_positions=chosen.max_positions,
        max_steps=config.max_steps_of(decoder=decoder),
        scale_step_table=config.tensor2tensor.scale_step_table,
        concatenate=config.tensor2tensor.concatenate_coordinates,
        every_step=chosen.injection == "every_step",
        shift_by_step=config.tensor2tensor.shift_positions_by_step,
        end=chosen.from_end and not decoder and not config.attention.rotary_source,
    )


def _plain_coordinates(config: ModelConfig) -> Coordinates | None:
    """Positions before plain layers, when the recurrence adds its own at each step (as tensor2tensor does it)."""
    inside = config.coordinates.injection == "every_step" and config.coordinates.position == "sinusoidal"
    plain = config.tensor2tensor.plain_layers_before or config.tensor2tensor.plain_layers_after
    if not inside or not plain:
        return None
    return Coordinates(
        config.sizes.width,
        num_heads=config.sizes.num_heads,
        layout=config.coordinates.layout,
        step="none",
        every_step=False,
    )


def recurrence(config: ModelConfig, *, decoder: bool, cross_attention: bool = False) -> Recurrence:
    """Return the recurrence of the encoder, or of the decoder with or without attention to a source."""

    def blocks(count: int) -> list[Block]:
        return [_block(config, decoder=decoder, cross_attention=cross_attention) for _ in range(count)]

    width, step = config.sizes.width, config.step
    max_steps = config.max_steps_of(decoder=decoder)
    halting = None
    if config.halts_in(decoder=decoder):
        halting = HaltingUnit(width, bias=float(config.halting.bias), scope=config.halting.scope)
    closing = nn.LayerNorm(width, eps=step.norm_epsilon) if step.norm == "pre" else None
    return Recurrence(
        _coordinates(config, decoder=decoder),
        blocks(step.blocks * (1 if step.tied else max_steps)),
        layers_per_step=step.blocks,
        tied=step.tied,
        max_steps=max_steps,  # lead: min_steps=config.min_steps_of(decoder=decoder), rule=config.halting.rule
        decoder=decoder,
        before=blocks(config.tensor2tensor.plain_layers_before),
        after=blocks(config.tensor2tensor.plain_layers_after),
        plain_coordinates=_plain_coordinates(config),
        closing_norm=closing,
        halting=halting,
        threshold=config.halting.threshold,
        remainder_at_cap=config.halting.remainder_at_cap,
        output=config.halting.output,
        state=config.halting.state,
        form=config.execution.halting_execution,
        checkpointed=config.execution.activation_checkpointing,
    )
