"""From a configuration of any kind, or the folder of a saved model, to the model."""

from pathlib import Path

from universal_transformer.files import show_path
from universal_transformer.models.model import Model
from universal_transformer.models.model_config import BaseConfig, config_from_dict
from universal_transformer.models.pretrained import CONFIG, find_model, read_config
from universal_transformer.models.universal import CLASSES


def build(config: BaseConfig) -> Model:
    return CLASSES[config.architecture, config.writes](config)


def load_pretrained(folder: str | Path) -> Model:
    """The model in ``folder``, that of the training run in ``folder``, or the pretrained one of this name."""
    folder = find_model(folder)
    config = config_from_dict(read_config(folder), where=show_path(folder / CONFIG))
    return CLASSES[config.architecture, config.writes].from_pretrained(folder)
