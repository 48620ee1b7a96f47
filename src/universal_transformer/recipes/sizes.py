"""How many parameters a configuration has, in closed form, and the Transformer that has as many. Needs no torch.

With width d, filter width f and T steps of b blocks:

================================ ==========================================
attention                        4 d² (+ 4 d with biases)
transition                       2 d f + f + d
norms                            2 d each
halting unit                     d + 1 a side
================================ ==========================================

A Universal Transformer has b blocks a side, a Transformer T b of them.
"""

from __future__ import annotations

import dataclasses

from universal_transformer.models.config import ModelConfig


def num_parameters(config: ModelConfig) -> int:
    """Return the parameters of a model with sinusoidal or no coordinates and a feed-forward transition.

    Sizes that follow from the data (vocabularies, classes) must be filled in.
    """
    plain = ("sinusoidal", "none", "rotary")
    assert config.position_coordinates in plain, "learned positions are not counted here"
    assert config.step_coordinates in plain, "learned steps are not counted here"
    assert config.transition == "feed_forward", "convolutions are not counted here"
    assert config.combine_coordinates == "add", "the projection of coordinates is not counted here"
    width = config.width
    depth = config.layers_per_step * (1 if config.tied else config.max_steps)
    depth += config.plain_layers_before + config.plain_layers_after
    side = 2 * width * (config.norm == "pre") + (width + 1) * config.halting
    total = depth * _block(config, attentions=1) + side
    if config.architecture == "encoder_decoder":
        total += depth * (_block(config, attentions=2) + width * config.source_sink) + side
        total += width * (config.separator_id > 0)
    return total + _tables(config)


def _block(config: ModelConfig, *, attentions: int) -> int:
    width, filter_width = config.width, config.filter_width
    attention = 4 * width * width + 4 * width * config.attention_bias
    transition = 2 * width * filter_width + filter_width + width
    return attentions * (attention + 2 * width) + transition + 2 * width


def _tables(config: ModelConfig) -> int:
    """Embeddings, masks of facts, and what turns states into scores."""
    width = config.width
    found = config.vocabulary_size * width
    if config.inputs == "facts":
        found += config.max_fact_words * width
    if config.architecture == "classifier":
        return found + (width * width if config.pooling == "pointer" else config.num_classes * (width + 1))
    targets = config.target_vocabulary_size or config.vocabulary_size
    found += config.target_vocabulary_size * width
    return found + targets * width * (not config.tie_output) + targets * config.output_bias


def transformer_of(config: ModelConfig) -> ModelConfig:
    """Return the Transformer at equal compute: as wide and as deep, a block of its own for each step.

    Positions are encoded once, at the input, and steps are not encoded (Vaswani et al. 2017).
    """
    return dataclasses.replace(
        config, tied=False, halting=False, position_injection="input", step_coordinates="none"
    )


def small_transformer_of(config: ModelConfig, *, vocabulary_size: int) -> ModelConfig:
    """Return the Transformer at equal parameters: as deep, and so much narrower that it has as many.

    The width is the largest multiple of two channels a head at which a transition of the same proportions fits; the
    filter width takes what is left. `vocabulary_size` is what the data will fill in.
    """
    like = dataclasses.replace(transformer_of(config), vocabulary_size=vocabulary_size)
    wanted = num_parameters(dataclasses.replace(config, vocabulary_size=vocabulary_size))
    sides = 2 if config.architecture == "encoder_decoder" else 1
    step = 2 * config.num_heads
    for width in range(config.width - config.width % step, 0, -step):
        filter_width = config.filter_width * width // config.width
        missing = wanted - num_parameters(dataclasses.replace(like, width=width, filter_width=filter_width))
        if missing >= 0:
            blocks = sides * config.max_steps * config.layers_per_step
            filter_width += round(missing / (blocks * (2 * width + 1)))
            return dataclasses.replace(transformer_of(config), width=width, filter_width=filter_width)
    raise AssertionError("embeddings alone have as many parameters: no Transformer is small enough")
