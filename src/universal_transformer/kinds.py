"""The kinds of configuration: the Universal Transformer and the baselines. Needs no torch."""

from __future__ import annotations

from typing import Any

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.interop.tensor2tensor_config import OfficialConfig
from universal_transformer.models.config import ModelConfig
from universal_transformer.typed import listed

AnyModelConfig = ModelConfig | LstmConfig | NeuralGpuConfig

KINDS: dict[str, type[ModelConfig] | type[LstmConfig] | type[NeuralGpuConfig]] = {
    kind.kind: kind for kind in (ModelConfig, OfficialConfig, LstmConfig, NeuralGpuConfig)
}
"""Kind -> class. Files have the kind under "kind"."""


def config_from_dict(fields: Any, *, where: str = "model configuration") -> AnyModelConfig:
    """Undo ``to_dict`` of a configuration of any kind; UserError for what it could not have written."""
    if not isinstance(fields, dict):
        raise UserError(f"{where}: expected an object, found {show(fields)}")
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"{where}: kind: expected one of {listed(KINDS)}, found {show(kind)}")
    return KINDS[kind].from_dict(fields, where=where)
