"""From a configuration to the recurrence of one side of a model."""

from __future__ import annotations

import dataclasses

from torch import nn

from universal_transformer.execution.install import install
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.plain_layers import MixedRecurrence, PlainLayers
from universal_transformer.nn.block import Block, residual_scale
from universal_transformer.nn.config import HALTING_RULES, CoordinatesConfig, load_object
from universal_transformer.nn.coordinates import Coordinates
from universal_transformer.nn.halting import HaltingUnit
from universal_transformer.nn.progress import Depth
from universal_transformer.nn.recurrence import Recurrence

USUAL_LENGTH = 16
"""The number of steps that the initial bias of halting is for, where each sequence has its own."""


def recurrence(config: ModelConfig, *, decoder: bool, cross_attention: bool = False) -> Recurrence:
    """Return the recurrence of the encoder, or of the decoder with or without attention to a source."""
    sizes, step, t2t = config.sizes, config.step, config.tensor2tensor
    max_steps, min_steps = config.max_steps_of(decoder=decoder), config.min_steps_of(decoder=decoder)
    zero_padding = t2t.zero_padding and not decoder and config.transition.kind == "feed_forward"
    scale = 1.0
    if step.norm == "deep":
        scale = residual_scale(num_sublayers=(3 if cross_attention else 2) * step.blocks * max_steps)

    def blocks(count: int) -> list[Block]:
        return [
            Block(
                sizes,
                step=step,
                attention=config.source_attention,
                transition=config.transition,
                decoder=decoder,
                cross_attention=cross_attention,
                zero_padding=zero_padding,
                scale=scale,
            )
            for _ in range(count)
        ]

    depth = Depth(max_steps, min_steps, config.halting.stops_at, by_length=config.by_length(decoder=decoder))
    halting = _halting_unit(config, decoder=decoder) if config.halts_in(decoder=decoder) else None
    closing_norm = nn.LayerNorm(sizes.width, eps=step.norm_epsilon) if step.norm == "pre" else None
    plain = None
    if t2t.plain_layers_before or t2t.plain_layers_after:
        before, after = blocks(t2t.plain_layers_before), blocks(t2t.plain_layers_after)
        plain = PlainLayers(before, after, _plain_coordinates(config))
    coordinates = _coordinates(config, decoder=decoder)
    repeated = blocks(step.blocks * (1 if step.tied else max_steps))
    checkpointed = config.execution.activation_checkpointing
    if plain is None:
        made = Recurrence(
            coordinates,
            repeated,
            depth=depth,
            step=step,
            decoder=decoder,
            halting=halting,
            closing_norm=closing_norm,
            checkpointed=checkpointed,
        )
    else:
        made = MixedRecurrence(
            coordinates,
            repeated,
            plain=plain,
            depth=depth,
            step=step,
            decoder=decoder,
            halting=halting,
            closing_norm=closing_norm,
            checkpointed=checkpointed,
        )
    install(made, config.execution.halting_execution)
    return made


def _halting_unit(config: ModelConfig, *, decoder: bool) -> HaltingUnit:
    """Return the unit of the chosen rule. With ponder the last state is read, and each answer has one distribution."""
    chosen = config.halting
    if chosen.rule == "ponder":
        scope = "sequence" if config.architecture == "classifier" else chosen.scope
        chosen = dataclasses.replace(chosen, output="final", scope=scope)
    max_steps = USUAL_LENGTH if config.by_length(decoder=decoder) else config.max_steps_of(decoder=decoder)
    unit: HaltingUnit = load_object(HALTING_RULES[chosen.rule])(config.sizes.width, chosen, max_steps=max_steps)
    return unit


def _coordinates(config: ModelConfig, *, decoder: bool) -> Coordinates:
    """Positions and steps of one side; distances from the end are added to the source only (decision D12)."""
    t2t = config.tensor2tensor
    from_end = config.coordinates.from_end and not decoder and not config.source_attention.rotary_source
    return Coordinates(
        config.sizes,
        dataclasses.replace(config.coordinates, from_end=from_end),
        max_steps=config.max_steps_of(decoder=decoder),
        line=config.line_of(decoder=decoder),
        scale_step_table=t2t.scale_step_table,
        concatenate=t2t.concatenate_coordinates,
        shift_by_step=t2t.shift_positions_by_step,
    )


def _plain_coordinates(config: ModelConfig) -> Coordinates | None:
    """Positions before plain layers, when the recurrence adds its own inside the loop (as tensor2tensor does)."""
    inside = config.coordinates.injection == "every_step" and config.coordinates.position == "sinusoidal"
    if not inside:
        return None
    chosen = CoordinatesConfig(layout=config.coordinates.layout, step="none", injection="input")
    return Coordinates(config.sizes, chosen)
