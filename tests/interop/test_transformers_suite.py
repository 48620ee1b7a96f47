"""The tests that transformers has for each of its models, run with ours: `make test-transformers`.

They are those of the source distribution, in the folder that TRANSFORMERS_TESTS names. Tests of generation and of
exports are not in it; empty classes take their place.
"""

import os
import sys
import types
import unittest
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from unittest.mock import patch

import pytest
import torch

pytest.importorskip("transformers")
if "TRANSFORMERS_TESTS" not in os.environ:
    pytest.skip("TRANSFORMERS_TESTS names no folder", allow_module_level=True)

from universal_transformer.interop.transformers import (
    UniversalTransformerConfig,
    UniversalTransformerForCausalLM,
    UniversalTransformerForConditionalGeneration,
    UniversalTransformerForSequenceClassification,
    UniversalTransformerForTokenClassification,
    UniversalTransformerModel,
)
from universal_transformer.nn.recurrence import Recurrence

SUITE = "suite_of_transformers"
NoGeneration = type("NoGeneration", (), {})
ABSENT = {
    "generation.test_utils": ("GenerationTesterMixin", NoGeneration),
    "exporters.test_export": ("ExportTesterMixin", type("NoExport", (), {})),
    "utils.test_configuration_utils": ("config_common_kwargs", {}),
}
"""Modules that the source distribution lacks, and what is imported from each."""


def suite(name):
    """A module of the tests of transformers."""
    if SUITE not in sys.modules:
        package = types.ModuleType(SUITE)
        package.__path__ = [str(Path(os.environ["TRANSFORMERS_TESTS"]).resolve())]
        sys.modules[SUITE] = package
        for path, (content, value) in ABSENT.items():
            for module in (path.split(".")[0], path):
                sys.modules[f"{SUITE}.{module}"] = types.ModuleType(f"{SUITE}.{module}")
            setattr(sys.modules[f"{SUITE}.{path}"], content, value)
    return import_module(f"{SUITE}.{name}")


common, configuration = suite("test_modeling_common"), suite("test_configuration_common")
ROWS, LENGTH, TOKENS, WIDTH, CLASSES, SPECIAL = 3, 7, 99, 32, 3, 3
HALTING = {"bias": 0.0, "threshold": 0.6}
"""About a half halts after each step: some positions after the first, and some after the second."""


def without_dropout(config):
    config.components["step"]["dropout"] = 0.0
    return config


class Tester:
    """What the tests ask of a model: sizes, a configuration and inputs."""

    batch_size, seq_length, encoder_seq_length, decoder_seq_length, key_length = ROWS, LENGTH, LENGTH, LENGTH, LENGTH
    hidden_size, num_hidden_layers, num_attention_heads, vocab_size = WIDTH, 2, 4, TOKENS
    is_training = True

    def __init__(self, parent, side, **fields):
        self.parent, self.fields = parent, fields
        self.halting = HALTING | {"side": side}

    def get_config(self):
        return UniversalTransformerConfig(
            components={"halting": self.halting},
            vocab_size=TOKENS,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_attention_heads=self.num_attention_heads,
            num_hidden_layers=self.num_hidden_layers,
            **self.fields,
        )

    def inputs(self, config):
        ids = common.ids_tensor([ROWS, LENGTH], TOKENS - SPECIAL) + SPECIAL
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        return config, self.inputs(config)


class PairTester(Tester):
    """With a target."""

    def inputs(self, config):
        target = {f"decoder_{name}": value for name, value in super().inputs(config).items()}
        return super().inputs(config) | target


class Common(common.ModelTesterMixin):
    """What all tests have: labels, and what the models do otherwise."""

    maker, side, fields = Tester, "none", MappingProxyType({})
    test_can_init_all_missing_weights_before_2023 = True

    def setUp(self):
        torch.manual_seed(4)  # with others all positions may halt after the first of two steps
        common.global_rng.seed(4)
        self.model_tester = self.maker(self, self.side, **self.fields)
        self.config_tester = configuration.ConfigTester(
            self, config_class=UniversalTransformerConfig, hidden_size=WIDTH
        )

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_training(self):
        with patch.object(self, "all_model_classes", self.with_loss()):
            super().test_training()

    def test_retain_grad_hidden_states_attentions(self):
        with patch.object(self, "has_attentions", False):  # attention weights are copies, without gradients
            super().test_retain_grad_hidden_states_attentions()

    def test_gradient_checkpointing_enable_disable(self):
        """Without the class of a layer of transformers: a recurrence computes its steps again."""
        for model_class in self.all_model_classes:
            model = model_class(self.model_tester.get_config())
            assert not model.is_activation_checkpointing
            model.activation_checkpointing_enable()
            assert model.is_activation_checkpointing
            model.activation_checkpointing_disable()
            assert not model.is_activation_checkpointing

    def check_training_gradient_checkpointing(self, gradient_checkpointing_kwargs=None):
        """Steps that are computed again give the same gradients, and are computed twice."""
        for model_class in self.with_loss():
            model = model_class(without_dropout(self.model_tester.get_config())).train()
            inputs = self._prepare_for_class(self.model_tester.inputs(model.config), model_class, return_labels=True)
            model(**inputs).loss.backward()
            expected = [parameter.grad.clone() for parameter in model.parameters()]
            model.zero_grad()
            model.activation_checkpointing_enable(gradient_checkpointing_kwargs)
            with patch.object(Recurrence, "advance", autospec=True, side_effect=Recurrence.advance) as advance:
                loss = model(**inputs).loss
                calls = advance.call_count
                loss.backward()
            assert advance.call_count > calls
            for parameter, gradient in zip(model.parameters(), expected, strict=True):
                torch.testing.assert_close(parameter.grad, gradient)

    def with_loss(self):
        return tuple(kind for kind in self.all_model_classes if kind is not UniversalTransformerModel)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = dict(inputs_dict)
        if return_labels:
            ids = inputs.get("decoder_input_ids", inputs["input_ids"])
            if model_class is UniversalTransformerForSequenceClassification:
                inputs["labels"] = torch.zeros(ROWS, dtype=torch.long)
            elif model_class is UniversalTransformerForTokenClassification:
                inputs["labels"] = torch.zeros_like(ids)
            elif model_class is not UniversalTransformerModel:
                inputs["labels"] = ids.clone()
        return inputs


class TestCausalLM(Common, NoGeneration, unittest.TestCase):
    all_model_classes = (UniversalTransformerModel, UniversalTransformerForCausalLM)
    all_generative_model_classes = (UniversalTransformerForCausalLM,)


class TestHaltingCausalLM(TestCausalLM):
    side = "decoder"


class TestConditionalGeneration(Common, NoGeneration, unittest.TestCase):
    all_model_classes = (UniversalTransformerModel, UniversalTransformerForConditionalGeneration)
    all_generative_model_classes = (UniversalTransformerForConditionalGeneration,)
    is_encoder_decoder = True
    maker, fields = PairTester, MappingProxyType({"is_encoder_decoder": True})


class TestHaltingConditionalGeneration(TestConditionalGeneration):
    side = "both"


class TestClassification(Common, unittest.TestCase):
    all_model_classes = (
        UniversalTransformerForSequenceClassification,
        UniversalTransformerForTokenClassification,
    )
    fields = MappingProxyType({"num_labels": CLASSES, "architecture": "classifier"})


class TestHaltingClassification(TestClassification):
    side = "encoder"
