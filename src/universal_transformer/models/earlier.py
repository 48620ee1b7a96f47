"""Configurations in the flat form of earlier versions, in ``config.json`` and ``results/*.jsonl``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

PATHS: dict[str, str] = {
    "vocabulary_size": "vocabulary.size",
    "target_vocabulary_size": "vocabulary.target_size",
    "num_classes": "vocabulary.num_classes",
    "max_fact_words": "vocabulary.max_fact_words",
    "padding_id": "vocabulary.padding_id",
    "start_id": "vocabulary.start_id",
    "end_id": "vocabulary.end_id",
    "separator_id": "vocabulary.separator_id",
    "inputs": "inputs.kind",
    "fact_mask_init": "inputs.fact_mask_init",
    "scale_embeddings": "inputs.scale_embeddings",
    "tie_output": "outputs.tie_output",
    "output_bias": "outputs.output_bias",
    "pooling": "outputs.pooling",
    "width": "sizes.width",
    "filter_width": "sizes.filter_width",
    "num_heads": "sizes.num_heads",
    "coordinate_layout": "coordinates.layout",
    "position_coordinates": "coordinates.position",
    "step_coordinates": "coordinates.step",
    "position_injection": "coordinates.injection",
    "position_offsets": "coordinates.offsets",
    "independent_offsets": "coordinates.independent_offsets",
    "max_positions": "coordinates.max_positions",
    "end_coordinates": "coordinates.from_end",
    "attention_bias": "attention.bias",
    "attention_dropout": "attention.dropout",
    "rotary_source": "attention.rotary_source",
    "source_sink": "attention.source_sink",
    "transition": "transition.kind",
    "transition_dropout": "transition.dropout",
    "norm": "step.norm",
    "norm_epsilon": "step.norm_epsilon",
    "dropout": "step.dropout",
    "tied": "step.tied",
    "layers_per_step": "step.blocks",
    "max_steps": "depth.max_steps",
    "halting": "halting.side",
    "halting_threshold": "halting.threshold",
    "halting_bias": "halting.bias",
    "remainder_at_cap": "halting.remainder_at_cap",
    "halting_output": "halting.output",
    "halting_state": "halting.state",
    "halting_scope": "halting.scope",
    "scale_step_table": "tensor2tensor.scale_step_table",
    "combine_coordinates": "tensor2tensor.concatenate_coordinates",
    "position_start": "tensor2tensor.shift_positions_by_step",
    "plain_layers_before": "tensor2tensor.plain_layers_before",
    "plain_layers_after": "tensor2tensor.plain_layers_after",
    "zero_padding": "tensor2tensor.zero_padding",
    "ponder_padding": "tensor2tensor.ponder_padding",
    "num_target_spaces": "tensor2tensor.num_target_spaces",
    "allow_look_ahead": "tensor2tensor.allow_look_ahead",
    "recurrence": "execution.halting_execution",
    "activation_checkpointing": "execution.activation_checkpointing",
}
"""Earlier name -> path now."""

VALUES: dict[str, dict[Any, Any]] = {
    "halting": {True: "both", False: "none"},
    "combine_coordinates": {"add": False, "concatenate": True},
    "position_start": {"fixed": False, "step": True},
}
"""Earlier name -> earlier value -> value now."""


def nested(fields: dict[str, Any], *, paths: Collection[str]) -> dict[str, Any]:
    """Return flat fields of an earlier version in today's form; fields in today's form are returned as they are.

    `paths` are those of the configuration class. A name that is not among the earlier ones stays: its reader refuses
    it. So does a value that was not allowed.
    """
    if any(isinstance(value, dict) for value in fields.values()):
        return fields
    found: dict[str, Any] = {}
    for name, value in fields.items():
        path = PATHS.get(name, name)
        group, dot, field = path.partition(".")
        if not dot or path not in paths or name in paths:
            found[name] = value
            continue
        known = VALUES.get(name, {})
        change = next((new for old, new in known.items() if type(old) is type(value) and old == value), value)
        found.setdefault(group, {})[field] = change
    _convert_start(found, paths=paths)
    return found


def _convert_start(found: dict[str, Any], *, paths: Collection[str]) -> None:
    """Official checkpoints had a start id that was the id of padding; now a field says that they are the same."""
    ids = found.get("vocabulary", {})
    field = "tensor2tensor.start_is_padding"
    if field in paths and "start_id" in ids and ids["start_id"] == ids.get("padding_id", 0):
        del ids["start_id"]
        found.setdefault("tensor2tensor", {})["start_is_padding"] = True
