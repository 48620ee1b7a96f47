"""Parameters in closed form are those of the model, and rows of equal parameters or compute are equal in them."""

import dataclasses
from operator import attrgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from configs import config_of, with_fields
from universal_transformer.recipes import RECIPES
from universal_transformer.recipes.sizes import num_parameters, small_transformer_of, transformer_of
from universal_transformer.registry import build
from universal_transformer.typed import leaves, replaced

configs = st.builds(
    config_of,
    architecture=st.sampled_from(["encoder_decoder", "language_model", "classifier"]),
    width=st.sampled_from([16, 24, 40]),
    filter_width=st.integers(1, 70),
    num_heads=st.sampled_from([2, 4]),
    max_steps=st.integers(1, 4),
    vocabulary_size=st.integers(5, 40),
    target_vocabulary_size=st.sampled_from([0, 9]),
    num_classes=st.just(3),
    tied=st.booleans(),
    layers_per_step=st.integers(1, 2),
    plain_layers_before=st.integers(0, 1),
    norm=st.sampled_from(["pre", "post"]),
    attention_bias=st.booleans(),
    halting=st.booleans(),
    tie_output=st.booleans(),
    output_bias=st.booleans(),
)
to_source = st.fixed_dictionaries({"source_sink": st.booleans(), "separator_id": st.sampled_from([0, 3])})


def counted(config):
    with torch.device("meta"):
        return build(config).num_parameters()


@given(configs, to_source)
def test_parameters_in_closed_form_are_those_of_the_model(config, choices):
    if config.architecture != "encoder_decoder":
        choices = {"target_vocabulary_size": 0}
    config = with_fields(config, **choices)
    assert num_parameters(config) == counted(config)


def test_facts_are_counted_with_their_masks():
    config = config_of(
        architecture="classifier", inputs="facts", vocabulary_size=20, num_classes=7, max_fact_words=9
    )
    assert num_parameters(config) == counted(config)


@given(st.sampled_from([64, 128, 192]), st.integers(2, 8), st.sampled_from([14, 300, 4000]))
def test_the_small_transformer_has_as_many_parameters(width, depth, vocabulary):
    config = config_of(width=width, filter_width=4 * width, max_steps=depth, norm="pre")
    small = small_transformer_of(config, vocabulary_size=vocabulary)
    assert not small.step.tied
    assert small.max_steps == depth
    assert small.sizes.width % small.sizes.num_heads == 0
    ours, theirs = (counted(with_fields(one, vocabulary_size=vocabulary)) for one in (config, small))
    assert theirs == pytest.approx(ours, rel=0.02)


VOCABULARIES = {"multi30k": 4000, "agreement": 7151, "lambada": 20_000, "lambada-reading": 34_781}
"""Of tasks that need files."""
FEW = {"train_examples": 9, "validation_examples": 3, "test_examples": 3}


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-transformer-small")])
def test_rows_of_equal_parameters_have_them_with_their_data(name):
    base, small = RECIPES[name.removesuffix("-transformer-small")](), RECIPES[name]()
    task = name.removesuffix("-transformer-small")
    if task in VOCABULARIES:
        sizes = {"vocabulary.size": VOCABULARIES[task], "vocabulary.num_classes": VOCABULARIES[task]}
    else:
        sizes = dataclasses.replace(base.data, **FEW).load().model_fields
    ours, theirs = (counted(replaced(one.model, sizes)) for one in (base, small))
    assert theirs == pytest.approx(ours, rel=0.02)


def test_the_transformer_at_equal_compute_differs_in_what_makes_it_one():
    config = RECIPES["copy-ut-halting"]().model
    found = transformer_of(config)
    different = {path for path in leaves(type(config)) if attrgetter(path)(config) != attrgetter(path)(found)}
    assert different == {"step.tied", "halting.side", "coordinates.injection", "coordinates.step"}
