"""Which class a configuration builds."""

from pathlib import Path

from universal_transformer.models.classifier import Classifier
from universal_transformer.models.config import ModelConfig
from universal_transformer.models.encoder_decoder import EncoderDecoder
from universal_transformer.models.language_model import LanguageModel
from universal_transformer.models.pretrained import read_config

Model = EncoderDecoder | LanguageModel | Classifier

ARCHITECTURES: dict[str, type[EncoderDecoder] | type[LanguageModel] | type[Classifier]] = {
    "encoder_decoder": EncoderDecoder,
    "language_model": LanguageModel,
    "classifier": Classifier,
}


def build(config: ModelConfig) -> Model:
    """A model of ``config.architecture`` with fresh weights."""
    return ARCHITECTURES[config.architecture](config)


def load_pretrained(folder: str | Path) -> Model:
    """The model in ``folder``, of whichever class it is."""
    return ARCHITECTURES[read_config(Path(folder)).architecture].from_pretrained(folder)
