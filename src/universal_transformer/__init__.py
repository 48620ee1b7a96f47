"""Universal Transformer: one shared block applied at every depth step, with dynamic halting for each position.

>>> from universal_transformer import EncoderDecoder, HaltingConfig, ModelConfig, VocabularyConfig
>>> config = ModelConfig(vocabulary=VocabularyConfig(size=1000), halting=HaltingConfig(side="both"))
>>> model = EncoderDecoder(config)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from universal_transformer.decoding.options import Beams as Beams
    from universal_transformer.decoding.options import DecodingOptions as DecodingOptions
    from universal_transformer.errors import UserError as UserError
    from universal_transformer.evaluation.pipeline import Pipeline as Pipeline
    from universal_transformer.evaluation.pipeline import load as load
    from universal_transformer.models.call import DepthOptions as DepthOptions
    from universal_transformer.models.call import Generated as Generated
    from universal_transformer.models.call import Sampling as Sampling
    from universal_transformer.models.components import CoordinatesConfig as CoordinatesConfig
    from universal_transformer.models.components import DepthConfig as DepthConfig
    from universal_transformer.models.components import ExecutionConfig as ExecutionConfig
    from universal_transformer.models.components import GenerationConfig as GenerationConfig
    from universal_transformer.models.components import InputsConfig as InputsConfig
    from universal_transformer.models.components import OutputsConfig as OutputsConfig
    from universal_transformer.models.components import VocabularyConfig as VocabularyConfig
    from universal_transformer.models.model_config import ModelConfig as ModelConfig
    from universal_transformer.models.outputs import FrameOutput as FrameOutput
    from universal_transformer.models.outputs import ModelOutput as ModelOutput
    from universal_transformer.models.universal import Classifier as Classifier
    from universal_transformer.models.universal import EncoderDecoder as EncoderDecoder
    from universal_transformer.models.universal import FrameGenerator as FrameGenerator
    from universal_transformer.models.universal import LanguageModel as LanguageModel
    from universal_transformer.models.universal import MultiLabelClassifier as MultiLabelClassifier
    from universal_transformer.models.universal import Tagger as Tagger
    from universal_transformer.nn.context import Kept as Kept
    from universal_transformer.nn.step_config import AttentionConfig as AttentionConfig
    from universal_transformer.nn.step_config import HaltingConfig as HaltingConfig
    from universal_transformer.nn.step_config import Sizes as Sizes
    from universal_transformer.nn.step_config import StepConfig as StepConfig
    from universal_transformer.nn.step_config import TransitionConfig as TransitionConfig
    from universal_transformer.nn.trace import Trace as Trace
    from universal_transformer.presets import SIZES as SIZES
    from universal_transformer.presets import preset as preset
    from universal_transformer.registry import build as build
    from universal_transformer.registry import load_pretrained as load_pretrained
    from universal_transformer.rules import Exit as Exit
    from universal_transformer.tasks.task import Prediction as Prediction

__version__ = "0.1.0"

_NAMES = {
    "decoding.options": ("Beams", "DecodingOptions"),
    "errors": ("UserError",),
    "evaluation.pipeline": ("Pipeline", "load"),
    "models.call": ("DepthOptions", "Generated", "Sampling"),
    "models.components": (
        "CoordinatesConfig",
        "DepthConfig",
        "ExecutionConfig",
        "GenerationConfig",
        "InputsConfig",
        "OutputsConfig",
        "VocabularyConfig",
    ),
    "models.model_config": ("ModelConfig",),
    "models.outputs": ("FrameOutput", "ModelOutput"),
    "models.universal": (
        "Classifier",
        "EncoderDecoder",
        "FrameGenerator",
        "LanguageModel",
        "MultiLabelClassifier",
        "Tagger",
    ),
    "nn.context": ("Kept",),
    "nn.step_config": ("AttentionConfig", "HaltingConfig", "Sizes", "StepConfig", "TransitionConfig"),
    "nn.trace": ("Trace",),
    "presets": ("SIZES", "preset"),
    "registry": ("build", "load_pretrained"),
    "rules": ("Exit",),
    "tasks.task": ("Prediction",),
}
"""The public names of each module."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_HOME]


def __getattr__(name: str) -> object:
    """Public names are imported when first used, so that the command line answers before torch is loaded."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
