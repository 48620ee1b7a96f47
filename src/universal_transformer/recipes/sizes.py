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

from universal_transformer.models.config import ModelConfig
from universal_transformer.typed import replaced


def num_parameters(config: ModelConfig) -> int:
    """Return the parameters of a model with sinusoidal or no coordinates and a feed-forward transition.

    Sizes that follow from the data (vocabularies, classes) must be filled in.
    """
    plain = ("sinusoidal", "none", "rotary")
    assert config.coordinates.position in plain, "learned positions are not counted here"
    assert config.coordinates.step in plain, "learned steps are not counted here"
    assert config.transition.kind == "feed_forward", "convolutions are not counted here"
    concatenated = config.tensor2tensor.concatenate_coordinates
    assert not concatenated, "the projection of coordinates is not counted here"
    width = config.sizes.width
    total = 0
    if config.architecture != "language_model":
        total += _num_blocks(config, decoder=False) * _block(config, attentions=1)
        total += _side(config, decoder=False)
    if config.architecture != "classifier":
        crossed = config.architecture == "encoder_decoder"
        block = _block(config, attentions=2 if crossed else 1) + width * config.attention.source_sink
        total += _num_blocks(config, decoder=True) * block + _side(config, decoder=True)
        total += width * (config.vocabulary.separator_id > 0)
    return total + _tables(config)


def _num_blocks(config: ModelConfig, *, decoder: bool) -> int:
    steps = 1 if config.step.tied else config.max_steps_of(decoder=decoder)
    return config.step.blocks * steps + (
        config.tensor2tensor.plain_layers_before + config.tensor2tensor.plain_layers_after
    )


def _side(config: ModelConfig, *, decoder: bool) -> int:
    """The closing norm and the halting unit."""
    width = config.sizes.width
    return 2 * width * (config.step.norm == "pre") + (width + 1) * config.halts_in(decoder=decoder)


def _block(config: ModelConfig, *, attentions: int) -> int:
    width, filter_width = config.sizes.width, config.sizes.filter_width
    attention = 4 * width * width + 4 * width * config.attention.bias
    transition = 2 * width * filter_width + filter_width + width
    return attentions * (attention + 2 * width) + transition + 2 * width


def _tables(config: ModelConfig) -> int:
    """Embeddings, masks of facts, and what turns states into scores."""
    width = config.sizes.width
    found = config.vocabulary.size * width
    if config.inputs.kind == "facts":
        found += config.vocabulary.max_fact_words * width
    if config.architecture == "classifier":
        return found + (
            width * width
            if config.outputs.pooling == "pointer"
            else config.vocabulary.num_classes * (width + 1)
        )
    targets = config.vocabulary.target_size or config.vocabulary.size
    found += config.vocabulary.target_size * width
    return found + targets * width * (not config.outputs.tie_output) + targets * config.outputs.output_bias


def transformer_of(config: ModelConfig) -> ModelConfig:
    """Return the Transformer at equal compute: as wide and as deep, a block of its own for each step.

    Positions are told once, at the input, and steps not at all (Vaswani et al. 2017).
    """
    return replaced(
        config,
        {
            "step.tied": False,
            "halting.side": "none",
            "coordinates.injection": "input",
            "coordinates.step": "none",
        },
    )


def small_transformer_of(config: ModelConfig, *, vocabulary_size: int) -> ModelConfig:
    """Return the Transformer at equal parameters: as deep, and so much narrower that it has as many.

    The width is the largest multiple of two channels a head at which a transition of the same proportions fits; the
    filter width takes what is left. `vocabulary_size` is what the data will fill in.
    """
    like = replaced(transformer_of(config), {"vocabulary.size": vocabulary_size})
    wanted = num_parameters(replaced(config, {"vocabulary.size": vocabulary_size}))
    sides = 2 if config.architecture == "encoder_decoder" else 1
    step = 2 * config.sizes.num_heads
    for width in range(config.sizes.width - config.sizes.width % step, 0, -step):
        filter_width = config.sizes.filter_width * width // config.sizes.width
        missing = wanted - num_parameters(_resized(like, width, filter_width))
        if missing >= 0:
            blocks = sides * config.max_steps * config.step.blocks
            filter_width += round(missing / (blocks * (2 * width + 1)))
            return _resized(transformer_of(config), width, filter_width)
    raise AssertionError("embeddings alone have as many parameters: no Transformer is small enough")


def _resized(config: ModelConfig, width: int, filter_width: int) -> ModelConfig:
    return replaced(config, {"sizes.width": width, "sizes.filter_width": filter_width})
