"""From a configuration of any kind, or the folder of a saved model, to the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.baselines.lstm import LstmClassifier, LstmEncoderDecoder, LstmLanguageModel
from universal_transformer.baselines.neural_gpu import NeuralGpu
from universal_transformer.files import show_path
from universal_transformer.interop.tensor2tensor_config import OfficialConfig
from universal_transformer.interop.tensor2tensor_parts import (
    OfficialClassifier,
    OfficialEncoderDecoder,
    OfficialLanguageModel,
    OfficialTagger,
)
from universal_transformer.kinds import AnyModelConfig, config_from_dict
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.model import Model
from universal_transformer.models.pretrained import CONFIG, find_model, read_config
from universal_transformer.models.universal import Classifier, EncoderDecoder, FrameGenerator, LanguageModel, Tagger

CLASSES: dict[tuple[type[AnyModelConfig], str], type[Model]] = {
    (ModelConfig, "encoder_decoder"): EncoderDecoder,
    (ModelConfig, "language_model"): LanguageModel,
    (ModelConfig, "classifier"): Classifier,
    (ModelConfig, "tagger"): Tagger,
    (OfficialConfig, "encoder_decoder"): OfficialEncoderDecoder,
    (OfficialConfig, "language_model"): OfficialLanguageModel,
    (OfficialConfig, "classifier"): OfficialClassifier,
    (OfficialConfig, "tagger"): OfficialTagger,
    (LstmConfig, "encoder_decoder"): LstmEncoderDecoder,
    (LstmConfig, "language_model"): LstmLanguageModel,
    (LstmConfig, "classifier"): LstmClassifier,
    (NeuralGpuConfig, "encoder_decoder"): NeuralGpu,
}
"""Kind of configuration and architecture -> class of model."""


def class_of(config: AnyModelConfig) -> type[Model]:
    """The class that ``config`` builds."""
    if isinstance(config, ModelConfig) and config.outputs.kind == "frames":
        return FrameGenerator
    return CLASSES[type(config), config.architecture]


def build(config: AnyModelConfig) -> Model:
    """A model of ``config`` with fresh weights."""
    return cast("Callable[[AnyModelConfig], Model]", class_of(config))(config)


def load_pretrained(folder: str | Path) -> Model:
    """The model in ``folder``, that of the training run in ``folder``, or the pretrained one of this name."""
    folder = find_model(folder)
    config = config_from_dict(read_config(folder), where=show_path(folder / CONFIG))
    return class_of(config).from_pretrained(folder)
