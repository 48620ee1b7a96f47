"""Universal Transformer: one shared block, applied again and again over depth, halting for each position by itself.

>>> from universal_transformer import EncoderDecoder, ModelConfig
>>> model = EncoderDecoder(ModelConfig(vocabulary_size=1000, halting=True))
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from universal_transformer.errors import UserError
    from universal_transformer.models.build import build, load_pretrained
    from universal_transformer.models.classifier import Classifier
    from universal_transformer.models.config import ModelConfig, preset
    from universal_transformer.models.encoder_decoder import EncoderDecoder
    from universal_transformer.models.language_model import LanguageModel
    from universal_transformer.models.outputs import ModelOutput
    from universal_transformer.nn.trace import Trace

__version__ = "0.1.0"

_HOME = {
    "UserError": "errors",
    "build": "models.build",
    "load_pretrained": "models.build",
    "Classifier": "models.classifier",
    "ModelConfig": "models.config",
    "preset": "models.config",
    "EncoderDecoder": "models.encoder_decoder",
    "LanguageModel": "models.language_model",
    "ModelOutput": "models.outputs",
    "Trace": "nn.trace",
}

__all__ = [
    "Classifier",
    "EncoderDecoder",
    "LanguageModel",
    "ModelConfig",
    "ModelOutput",
    "Trace",
    "UserError",
    "build",
    "load_pretrained",
    "preset",
]


def __getattr__(name: str) -> object:
    """Public names are imported when first used, so that the command line answers before torch is loaded."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
