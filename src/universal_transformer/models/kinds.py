"""Which configurations there are: ours, and one of each baseline. Needs no torch."""

from __future__ import annotations

from typing import Any

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.errors import UserError
from universal_transformer.models.config import ModelConfig

AnyModelConfig = ModelConfig | LstmConfig | NeuralGpuConfig

KINDS: dict[str, type[ModelConfig] | type[LstmConfig] | type[NeuralGpuConfig]] = {
    "universal_transformer": ModelConfig,
    LstmConfig.kind: LstmConfig,
    NeuralGpuConfig.kind: NeuralGpuConfig,
}
"""Kind -> class. Files say the kind of a baseline under "kind"; without that they are of a Universal Transformer."""


def kind_of(
    fields: dict[str, Any], *, where: str = "model configuration"
) -> type[ModelConfig] | type[LstmConfig] | type[NeuralGpuConfig]:
    """Return the class that a configuration's JSON fields are of; an unknown kind is a UserError."""
    kind = fields.get("kind", "universal_transformer")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"{where}: kind: {kind!r} is no kind of model; known are {', '.join(KINDS)}")
    return KINDS[kind]


def config_from_dict(fields: dict[str, Any]) -> AnyModelConfig:
    """Undo ``to_dict`` of whichever configuration it is; UserError for what it could not have written."""
    return kind_of(fields).from_dict(fields)
