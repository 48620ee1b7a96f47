"""Universal Transformer: one shared block applied at every depth step, with dynamic halting for each position.

>>> from universal_transformer import EncoderDecoder, HaltingConfig, ModelConfig, VocabularyConfig
>>> config = ModelConfig(vocabulary=VocabularyConfig(size=1000), halting=HaltingConfig(side="both"))
>>> model = EncoderDecoder(config)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from universal_transformer.decoding.options import Beams, DecodingOptions
    from universal_transformer.errors import UserError
    from universal_transformer.evaluation.pipeline import Pipeline, load
    from universal_transformer.models.call import DepthOptions, Generated, Sampling
    from universal_transformer.models.components import (
        CoordinatesConfig,
        DepthConfig,
        ExecutionConfig,
        GenerationConfig,
        InputsConfig,
        OutputsConfig,
        VocabularyConfig,
    )
    from universal_transformer.models.model_config import ModelConfig
    from universal_transformer.models.outputs import FrameOutput, ModelOutput
    from universal_transformer.models.universal import (
        Classifier,
        EncoderDecoder,
        FrameGenerator,
        LanguageModel,
        MultiLabelClassifier,
        Tagger,
    )
    from universal_transformer.nn.context import Kept
    from universal_transformer.nn.step_config import (
        AttentionConfig,
        HaltingConfig,
        Sizes,
        StepConfig,
        TransitionConfig,
    )
    from universal_transformer.nn.trace import Trace
    from universal_transformer.presets import SIZES, preset
    from universal_transformer.registry import build, load_pretrained
    from universal_transformer.rules import Exit
    from universal_transformer.tasks.task import Prediction

__version__ = "0.1.0"

_HOME = {
    "UserError": "errors",
    "Beams": "decoding.options",
    "DecodingOptions": "decoding.options",
    "Pipeline": "evaluation.pipeline",
    "Prediction": "tasks.task",
    "load": "evaluation.pipeline",
    "build": "registry",
    "load_pretrained": "registry",
    "DepthOptions": "models.call",
    "Classifier": "models.universal",
    "ExecutionConfig": "models.model_config",
    "InputsConfig": "models.model_config",
    "GenerationConfig": "models.model_config",
    "ModelConfig": "models.model_config",
    "OutputsConfig": "models.model_config",
    "VocabularyConfig": "models.model_config",
    "SIZES": "presets",
    "preset": "presets",
    "AttentionConfig": "nn.step_config",
    "CoordinatesConfig": "models.components",
    "DepthConfig": "models.components",
    "Exit": "rules",
    "HaltingConfig": "nn.step_config",
    "Sizes": "nn.step_config",
    "StepConfig": "nn.step_config",
    "TransitionConfig": "nn.step_config",
    "EncoderDecoder": "models.universal",
    "FrameGenerator": "models.universal",
    "LanguageModel": "models.universal",
    "MultiLabelClassifier": "models.universal",
    "Tagger": "models.universal",
    "FrameOutput": "models.outputs",
    "ModelOutput": "models.outputs",
    "Generated": "models.call",
    "Sampling": "models.call",
    "Kept": "nn.context",
    "Trace": "nn.trace",
}

__all__ = [
    "SIZES",
    "AttentionConfig",
    "Beams",
    "Classifier",
    "CoordinatesConfig",
    "DecodingOptions",
    "DepthConfig",
    "DepthOptions",
    "EncoderDecoder",
    "ExecutionConfig",
    "Exit",
    "FrameGenerator",
    "FrameOutput",
    "Generated",
    "GenerationConfig",
    "HaltingConfig",
    "InputsConfig",
    "Kept",
    "LanguageModel",
    "ModelConfig",
    "ModelOutput",
    "MultiLabelClassifier",
    "OutputsConfig",
    "Pipeline",
    "Prediction",
    "Sampling",
    "Sizes",
    "StepConfig",
    "Tagger",
    "Trace",
    "TransitionConfig",
    "UserError",
    "VocabularyConfig",
    "build",
    "load",
    "load_pretrained",
    "preset",
]


def __getattr__(name: str) -> object:
    """Public names are imported when first used, so that the command line answers before torch is loaded."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
