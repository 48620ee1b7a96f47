"""Rows of equal parameters or compute are equal in them."""

import dataclasses

import pytest
import torch

from universal_transformer.recipes import RECIPES
from universal_transformer.registry import build


def counted(config):
    with torch.device("meta"):
        return build(config).num_parameters()


VOCABULARIES = {"multi30k": 4000, "agreement": 7151, "lambada": 20_000, "lambada-reading": 34_781}
"""Of tasks that need files."""
FEW = {"train_examples": 9, "validation_examples": 3, "test_examples": 3}


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-transformer-small")])
def test_rows_of_equal_parameters_have_them_with_their_data(name):
    base, small = RECIPES[name.removesuffix("-transformer-small")](), RECIPES[name]()
    task = name.removesuffix("-transformer-small")
    if task in VOCABULARIES:
        sizes = {"vocabulary_size": VOCABULARIES[task], "num_classes": VOCABULARIES[task]}
    else:
        sizes = dataclasses.replace(base.data, **FEW).load().model_fields
    ours, theirs = (counted(dataclasses.replace(one.model, **sizes)) for one in (base, small))
    assert theirs == pytest.approx(ours, rel=0.02)


def test_the_transformer_at_equal_compute_differs_in_what_makes_it_one():
    config, found = RECIPES["copy-ut-halting"]().model, RECIPES["copy-transformer"]().model
    different = {
        field.name
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != getattr(found, field.name)
    }
    assert different == {"tied", "halting", "position_injection", "step_coordinates"}
