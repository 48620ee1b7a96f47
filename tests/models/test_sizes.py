"""Every preset in every size, without memory for its weights; parameters counted by hand."""

import pytest
import torch

from configs import with_fields
from universal_transformer.presets import PRESETS, SIZES, preset
from universal_transformer.registry import build

VOCABULARY, CLASSES = 100, 7


def meta(config):
    with torch.device("meta"):
        return build(config)


def complete(name, *, size, **choices):
    return with_fields(preset(name, size=size), vocabulary_size=VOCABULARY, num_classes=CLASSES, **choices)


def by_hand(name, *, width, filter_width, max_steps=6):
    """Parameters of an encoder-decoder, counted from the equations."""
    attention, norm = 4 * width * width, 2 * width
    transition = 2 * width * filter_width + filter_width + width
    encoder = attention + norm + transition + norm
    total = encoder + (encoder + attention + norm) + VOCABULARY * width
    if name == "tensor2tensor":  # closing norms, step tables, problem spaces; no bias on the logits
        return total + 2 * norm + 2 * max_steps * width + 32 * width
    return total + VOCABULARY


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PRESETS)
def test_presets_build_in_all_sizes_with_the_parameters_of_the_equations(name, size):
    model = meta(complete(name, size=size))
    sizes = SIZES[size]
    assert model.num_parameters() == by_hand(name, width=sizes.width, filter_width=sizes.filter_width)
    assert all(p.is_meta for p in model.parameters())
    halting = meta(complete(name, size=size, halting=True))
    assert halting.num_parameters() == model.num_parameters() + 2 * (sizes.width + 1)


def test_tiny_in_figures():
    """Two attentions and a transition more in the decoder, 12,800 embeddings, 100 biases."""
    assert meta(complete("paper", size="tiny")).num_parameters() == 474_212
    assert meta(complete("tensor2tensor", size="tiny")).num_parameters() == 480_256


def test_depth_is_free_when_tied_and_paid_for_when_not():
    shallow, deep = (meta(complete("paper", size="tiny", max_steps=t)).num_parameters() for t in (1, 12))
    assert shallow == deep
    untied = meta(complete("paper", size="tiny", max_steps=12, tied=False)).num_parameters()
    assert untied - deep == 11 * (deep - VOCABULARY * 129)


@pytest.mark.parametrize("architecture", ["language_model", "classifier"])
def test_other_architectures_have_one_side(architecture):
    both = meta(complete("paper", size="tiny")).num_parameters()
    one = meta(complete("paper", size="tiny", architecture=architecture)).num_parameters()
    assert VOCABULARY * 128 < one < both - 100_000


def test_choices_with_buffers_and_tables_build_on_meta_too():
    for choices in (
        {"end_coordinates": True},
        {"position_coordinates": "learned", "step_coordinates": "learned"},
        {"combine_coordinates": "concatenate", "transition": "separable_convolution"},
        {"architecture": "classifier", "inputs": "facts", "max_fact_words": 9},
    ):
        assert meta(complete("paper", size="base", **choices)).num_parameters() > 0
