"""Configurations of baselines beside ModelConfig: files say which they are, and files of before stay what they were."""

import json

import pytest

from configs import config_of
from training import tiny
from universal_transformer.baselines.baseline_config import LstmConfig, NeuralGpuConfig
from universal_transformer.cli.fields import override
from universal_transformer.errors import UserError
from universal_transformer.models.model_config import config_from_dict
from universal_transformer.training.run_config import RunConfig

KINDS = [LstmConfig(num_layers=1), NeuralGpuConfig(cutoff=1.0), config_of(halting=True)]


BASES = {model.kind: model.to_dict() for model in (LstmConfig(), NeuralGpuConfig())}
INPUTS, VOCABULARY = (LstmConfig().to_dict()[name] for name in ("inputs", "vocabulary"))


@pytest.mark.parametrize("model", KINDS, ids=lambda model: type(model).__name__)
def test_a_run_of_any_kind_survives_json(model):
    config = tiny.run_config(model)
    fields = json.loads(json.dumps(config.to_dict()))
    assert RunConfig.from_dict(fields) == config
    assert config_from_dict(json.loads(json.dumps(model.to_dict()))) == model
    changed = override(config, ["--model.width", "8"], prog="ut train tiny")
    assert getattr(changed.model, "sizes", changed.model).width == 8
    assert type(changed.model) is type(model)
    assert changed.digest() != config.digest()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "gru"}, "kind: expected one of universal_transformer, tensor2tensor, lstm, neural_gpu, found 'gru'"),
        ({"kind": ["lstm"]}, "kind: expected one of"),
        ({"kind": "lstm", "halting": True}, "unknown: halting"),
        ({"kind": "lstm", "width": 8.0}, "width: expected a whole number, .*found 8.0"),
        ({"kind": "lstm", "width": 0}, "width: expected .*at least 1"),
        ({"kind": "lstm", "inputs": {**INPUTS, "kind": "facts"}}, "architecture must be"),
        ({"kind": "lstm", "vocabulary": {**VOCABULARY, "end_id": 0}}, "must differ from padding_id"),
        ({"kind": "lstm", "dropout": 1.0}, "at least 0 and below 1"),
        ({"kind": "lstm", "pooling": "first"}, "expected one of last, mean, pointer"),
        (
            {
                "kind": "lstm",
                "architecture": "classifier",
                "pooling": "pointer",
                "vocabulary": {**VOCABULARY, "num_classes": 3},
            },
            "the classes of a pointer are the tokens of its vocabulary",
        ),
        (
            {
                "kind": "lstm",
                "architecture": "classifier",
                "pooling": "pointer",
                "inputs": {**INPUTS, "kind": "facts"},
                "vocabulary": {**VOCABULARY, "max_fact_words": 2},
            },
            r'pooling=.pointer.: points at a token: inputs\.kind must be "tokens"',
        ),
        ({"kind": "lstm", "architecture": "tagger"}, "gives a class to a sequence, not to each position"),
        ({"kind": "neural_gpu", "architecture": "classifier"}, "allowed: encoder_decoder"),
        ({"kind": "neural_gpu", "kernel_size": 2}, "an odd number"),
        ({"kind": "neural_gpu", "cutoff": 0.5}, "at least 1 and at most 10"),
        ({"kind": "neural_gpu", "output_extra": 0}, "output_extra: expected .*at least 1"),
    ],
)
def test_what_is_wrong_is_named(fields, said):
    with pytest.raises(UserError, match=said):
        config_from_dict({**BASES.get(str(fields["kind"]), {}), **fields})


def test_fields_of_another_kind_are_not_offered():
    with pytest.raises(UserError, match="unknown option --halting-threshold"):
        override(tiny.run_config(LstmConfig()), ["--halting-threshold", "0.5"], prog="ut train tiny")
