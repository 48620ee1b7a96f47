"""Rows of equal parameters or compute are equal in them."""

import dataclasses
from operator import attrgetter

import pytest
import torch

from universal_transformer.recipes import RECIPES
from universal_transformer.registry import build
from universal_transformer.typed import leaves, replaced


def counted(config):
    with torch.device("meta"):
        return build(config).num_parameters()


VOCABULARIES = {
    "multi30k": 4000,
    "agreement": 7151,
    "agreement-more-text": 10_000,
    "lambada": 20_000,
    "lambada-reading": 38_493,
    "wmt14": 32_000,
    "wmt-news": 4000,
}
"""Of tasks that need files."""
PICTURES = {
    "vocabulary.size": 17,
    "vocabulary.target_size": 259,
    "outputs.kind": "raster",
    "outputs.columns": 14,
    "generation.max_new_tokens": 196,
    "generation.fixed_length": True,
}
FEW = {"train_examples": 9, "validation_examples": 3, "test_examples": 3}


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-transformer-small")])
def test_rows_of_equal_parameters_have_them_with_their_data(name):
    base, small = RECIPES[name.removesuffix("-transformer-small")](), RECIPES[name]()
    task = name.removesuffix("-transformer-small")
    if task in VOCABULARIES:
        sizes = {"vocabulary.size": VOCABULARIES[task], "vocabulary.num_classes": VOCABULARIES[task]}
    elif task == "pictures":
        sizes = PICTURES
    else:
        sizes = dataclasses.replace(base.data, **FEW).load().codec.model_fields
    ours, theirs = (counted(replaced(one.model, sizes)) for one in (base, small))
    assert theirs == pytest.approx(ours, rel=0.02)


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("halting-2x")])
def test_halting_may_take_twice_the_steps_of_the_fixed_depth(name):
    base = RECIPES[name.removesuffix("-ut-halting-2x").replace("halting-2x", "fixed")]().model
    model = RECIPES[name]().model
    assert model.depth.max_steps == 2 * base.depth.max_steps
    assert model.halting.bias is None
    different = {path for path in leaves(type(base)) if attrgetter(path)(base) != attrgetter(path)(model)}
    assert different - {"halting.bias"} == {"depth.max_steps", "halting.side"}


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-ut-post-norm")])
def test_post_norm_differs_in_what_it_takes_to_train_it(name):
    base, found = RECIPES[name.removesuffix("-ut-post-norm")](), RECIPES[name]()
    rate = 0.5 if name.startswith(("lte-program", "lte-control", "lte-addition")) else 1  # table 6: notebook/README.md
    changes = {
        "recipe": name,
        "model.step.norm": "deep",
        "training.warmup_updates": 2 * base.training.warmup_updates,
        "training.learning_rate": rate * base.training.learning_rate,
    }
    assert found == replaced(base, changes)
    assert base.model.step.norm == "pre"


def test_the_transformer_at_equal_compute_differs_in_what_makes_it_one():
    config, found = RECIPES["copy-ut-halting"]().model, RECIPES["copy-transformer"]().model
    different = {path for path in leaves(type(config)) if attrgetter(path)(config) != attrgetter(path)(found)}
    bias = "halting.bias"  # no unit uses it
    assert different == {"step.tied", "halting.side", bias, "coordinates.injection", "coordinates.step"}


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-lstm")])
def test_an_lstm_answers_as_the_universal_transformer_does(name):
    base, found = RECIPES[name.removesuffix("-lstm")]().model, RECIPES[name]().model
    assert found.architecture == base.architecture
    assert (found.pooling == "pointer") == (base.outputs.pooling == "pointer") == (name == "lambada-reading-lstm")
