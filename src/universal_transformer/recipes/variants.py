"""One task, several models: each function takes a recipe and returns that recipe with another model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from universal_transformer.baselines.config import LstmConfig, NeuralGpuConfig
from universal_transformer.kinds import AnyModelConfig
from universal_transformer.models.config import ModelConfig
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import replaced

Recipe = Callable[[], RunConfig]


def lstm(base: Recipe) -> Recipe:
    """Return the recipe with an LSTM of the same width; its name ends in -lstm.

    It points at a word where the base does. Other classifiers read the final states, whatever the base reads.
    """

    def model(universal: ModelConfig) -> LstmConfig:
        return LstmConfig(
            architecture=universal.architecture,
            inputs=universal.inputs,
            width=universal.sizes.width,
            pooling="pointer" if universal.outputs.pooling == "pointer" else "last",
            dropout=universal.step.dropout,
        )

    return _variant(base, model, suffix="lstm", title="LSTM")


def neural_gpu(base: Recipe) -> Recipe:
    """Return the recipe with a Neural GPU; its name ends in -neural-gpu."""

    def model(universal: ModelConfig) -> NeuralGpuConfig:
        return NeuralGpuConfig(dropout=universal.step.dropout)

    return _variant(base, model, suffix="neural-gpu", title="Neural GPU")


def transformer(base: Recipe) -> Recipe:
    """Return the recipe with the Transformer at equal compute; its name ends in -transformer."""
    return _variant(base, _transformer_of, suffix="transformer", title="Transformer")


def small_transformer(base: Recipe, *, width: int, filter_width: int) -> Recipe:
    """Return the recipe with the Transformer at equal parameters; its name ends in -transformer-small.

    It is as deep as the base and narrower. `width` is the largest multiple of two channels a head at which a
    transition of the same proportions has too few parameters; `filter_width` adds the rest. A test compares the totals.
    """

    def model(universal: ModelConfig) -> ModelConfig:
        changes = {"sizes.width": width, "sizes.filter_width": filter_width}
        return replaced(_transformer_of(universal), changes)

    title = "Transformer, as many parameters as the UT"
    return _variant(base, model, suffix="transformer-small", title=title)


def halting(base: Recipe) -> Recipe:
    """Return the recipe with dynamic halting; its name ends in -ut-halting."""

    def model(universal: ModelConfig) -> ModelConfig:
        return replaced(universal, {"halting.side": "both", "halting.bias": -1.0})

    return _variant(base, model, suffix="ut-halting", title="UT, dynamic halting")


def halting_2x(base: Recipe) -> Recipe:
    """Return the recipe with dynamic halting and a cap of twice its depth; its name ends in -ut-halting-2x.

    So it can take more steps than at a fixed depth, as in the paper, where up to 8.2 steps replace 6.
    """

    def model(universal: ModelConfig) -> ModelConfig:
        return replaced(universal, twice_the_depth(universal))

    return _variant(base, model, suffix="ut-halting-2x", title="UT, dynamic halting, cap of twice the depth")


def twice_the_depth(universal: ModelConfig) -> dict[str, object]:
    """Return the changes that make a model halt with a cap T of twice its depth.

    The bias follows from T, so that positions take about all steps at first.
    """
    cap = 2 * universal.max_steps_of(decoder=False)
    return {"halting.side": "both", "depth.max_steps": cap, "halting.bias": None}


def post_norm(base: Recipe, *, rate: float = 1.0) -> Recipe:
    """Return the recipe with LayerNorm after each sum, with DeepNorm's residual; its name ends in -ut-post-norm.

    The learning rate is `rate` times that of `base`.
    """

    def made() -> RunConfig:
        config = base()
        return replaced(config, {"recipe": f"{config.recipe}-ut-post-norm", **norm_after_sums(config, rate=rate)})

    return _described(made, base, title="UT, post-norm with DeepNorm")


def norm_after_sums(config: RunConfig, *, rate: float = 1.0) -> dict[str, object]:
    """Return the changes that put LayerNorm after the sums: DeepNorm, a warm-up twice as long, `rate` times the rate.

    Half of the rate is better on some tasks and worse on others; with the plain sum of the paper the models learn more
    slowly still (notebook/README.md).
    """
    return {
        "model.step.norm": "deep",
        "training.warmup_updates": 2 * config.training.warmup_updates,
        "training.learning_rate": rate * config.training.learning_rate,
    }


def _transformer_of(universal: ModelConfig) -> ModelConfig:
    """Return the Transformer at equal compute: of the same width and depth, with a block of its own for each step.

    Positions are encoded once, at the input, and steps are not encoded (Vaswani et al. 2017).
    """
    changes = {"step.tied": False, "halting.side": "none"}
    return replaced(universal, changes | {"coordinates.injection": "input", "coordinates.step": "none"})


def _variant(base: Recipe, model: Callable[[ModelConfig], AnyModelConfig], *, suffix: str, title: str) -> Recipe:
    def recipe() -> RunConfig:
        config = base()
        assert isinstance(config.model, ModelConfig), "the base of a variant is a Universal Transformer"
        return dataclasses.replace(config, recipe=f"{config.recipe}-{suffix}", model=model(config.model))

    return _described(recipe, base, title=title)


def _described(recipe: Recipe, base: Recipe, *, title: str) -> Recipe:
    recipe.__doc__ = f"{(base.__doc__ or '').split(chr(10))[0].rstrip('.')}: {title}."
    return recipe
