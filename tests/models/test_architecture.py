"""The class of a model decides what its configuration leaves open."""

import pytest

from universal_transformer import (
    Classifier,
    EncoderDecoder,
    LanguageModel,
    ModelConfig,
    Sizes,
    Tagger,
    VocabularyConfig,
)
from universal_transformer.baselines.baseline_config import LstmConfig
from universal_transformer.errors import UserError
from universal_transformer.typed import replaced

VOCABULARY = VocabularyConfig(size=9, num_classes=2)
OURS = ModelConfig(vocabulary=VOCABULARY, sizes=Sizes(width=8, num_heads=2))
LSTM = LstmConfig(vocabulary=VOCABULARY, width=8)


@pytest.mark.parametrize(
    ("kind", "config", "architecture"),
    [
        (LanguageModel, OURS, "language_model"),
        (Classifier, OURS, "classifier"),
        (Tagger, OURS, "tagger"),
        (EncoderDecoder, OURS, "encoder_decoder"),
        (LanguageModel, LSTM, "language_model"),
        (Classifier, LSTM, "classifier"),
        (EncoderDecoder, LSTM, "encoder_decoder"),
    ],
)
def test_a_class_decides_the_architecture_that_a_configuration_leaves_open(kind, config, architecture, tmp_path):
    model = kind(config)
    assert model.config == replaced(config, {"architecture": architecture})
    assert model.config.to_dict()["architecture"] == architecture
    model.save_pretrained(tmp_path)
    assert kind.from_pretrained(tmp_path).config == model.config


@pytest.mark.parametrize("other", [LanguageModel, Classifier])
def test_a_saved_model_is_not_opened_as_another(other, tmp_path):
    EncoderDecoder(OURS).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f'config.json: architecture="encoder_decoder": {other.__name__} needs'):
        other.from_pretrained(tmp_path)
