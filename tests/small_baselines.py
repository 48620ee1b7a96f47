"""Baselines small enough for laws to be checked on them, in float64, with weights unlike their starting values."""

import torch

from configs import config_of
from universal_transformer.baselines.baseline_config import LstmConfig, NeuralGpuConfig
from universal_transformer.registry import build

VOCABULARY = 9


def _shaken(model):
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def small_lstm(**fields):
    return _shaken(build(config_of(LstmConfig, **{"width": 6, "vocabulary_size": VOCABULARY, **fields})))


def small_neural_gpu(**fields):
    given = {"width": 4, "image_width": 2, "vocabulary_size": VOCABULARY, **fields}
    return _shaken(build(config_of(NeuralGpuConfig, **given)))
