"""Model configurations by short names: one line where nested dataclasses take ten."""

import dataclasses
from functools import cache

from universal_transformer.interop.tensor2tensor_config import OfficialConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.recipes import RECIPES
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import leaves, replaced

PATHS = {
    "vocabulary_size": "vocabulary.size",
    "target_vocabulary_size": "vocabulary.target_size",
    "num_classes": "vocabulary.num_classes",
    "max_fact_words": "vocabulary.max_fact_words",
    "padding_id": "vocabulary.padding_id",
    "start_id": "vocabulary.start_id",
    "end_id": "vocabulary.end_id",
    "separator_id": "vocabulary.separator_id",
    "inputs": "inputs.kind",
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
    "combine_coordinates": "tensor2tensor.concatenate_coordinates",
    "position_start": "tensor2tensor.shift_positions_by_step",
    "plain_layers_before": "tensor2tensor.plain_layers_before",
    "plain_layers_after": "tensor2tensor.plain_layers_after",
    "zero_padding": "tensor2tensor.zero_padding",
    "ponder_padding": "tensor2tensor.ponder_padding",
    "num_target_spaces": "tensor2tensor.num_target_spaces",
    "recurrence": "execution.halting_execution",
    "activation_checkpointing": "execution.activation_checkpointing",
}
"""Short name -> path."""
VALUES = {
    "halting": {True: "both", False: "none"},
    "combine_coordinates": {"add": False, "concatenate": True},
    "position_start": {"fixed": False, "step": True},
}
"""Short name -> short value -> value."""


@cache
def recipe_configs() -> dict[str, RunConfig]:
    """The configuration of each recipe by its name, made once, as there are many."""
    return {name: recipe() for name, recipe in RECIPES.items()}


def config_of(kind=ModelConfig, **fields):
    """A configuration from short names, ``config_of(width=8, halting=True)``; fields without one have their paths.

    With a choice of tensor2tensor it is an OfficialConfig.
    """
    return with_fields(kind(), **fields)


def with_fields(config, **fields):
    """`config` with fields changed by short names."""
    own = leaves(type(config))  # those of a baseline are not in groups
    changes = {
        name if name in own else PATHS.get(name, name): VALUES.get(name, {}).get(value, value)
        for name, value in fields.items()
    }
    return changed(config, changes)


def changed(config, changes):
    """`config` with fields at paths changed, an OfficialConfig where one is a choice of tensor2tensor."""
    if any(path.startswith("tensor2tensor.") for path in changes) and type(config) is ModelConfig:
        config = OfficialConfig(**{one.name: getattr(config, one.name) for one in dataclasses.fields(config)})
    return replaced(config, changes)
