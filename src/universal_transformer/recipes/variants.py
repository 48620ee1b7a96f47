"""One task, several models: each variant takes a configuration and returns it with another model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from universal_transformer.baselines.baseline_config import LstmConfig, NeuralGpuConfig
from universal_transformer.models.model_config import ModelConfig
from universal_transformer.recipes.start import Recipe, constant_rate
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import replaced

SMALL_SIZES: dict[str, tuple[int, int]] = {
    "pictures": (64, 287),
    "copy": (24, 224),
    "reverse": (24, 224),
    "addition": (24, 224),
}
"""Base -> width and filter width of the Transformer with as many parameters.

The width is the largest multiple of two channels a head at which a transition of the same proportions has too few
parameters; the filter width adds the rest. A test compares the totals.
"""


def universal(config: RunConfig) -> ModelConfig:
    assert isinstance(config.model, ModelConfig), "the base of a variant is a Universal Transformer"
    return config.model


def lstm(config: RunConfig) -> RunConfig:
    """An LSTM of the same width.

    It points at a word where the base does. Other classifiers read the final states, whatever the base reads.
    """
    base = universal(config)
    model = LstmConfig(
        architecture=base.architecture,
        inputs=base.inputs,
        width=base.sizes.width,
        pooling="pointer" if base.outputs.pooling == "pointer" else "last",
        dropout=base.step.dropout,
    )
    return dataclasses.replace(config, model=model)


def neural_gpu(config: RunConfig) -> RunConfig:
    """A Neural GPU, which learns short sources first (Kaiser and Sutskever 2016).

    It is one wide column: with four of 24 channels sums are not learned (notebook/neural_gpu_curriculum.md).
    """
    changes = {**constant_rate(), "training.curriculum": 0.3, "training.max_updates": 5000}
    model = NeuralGpuConfig(width=96, image_width=1, num_layers=1)
    return replaced(dataclasses.replace(config, model=model), changes)


def transformer(config: RunConfig) -> RunConfig:
    """The Transformer at equal compute: of the same width and depth, with a block of its own for each step.

    Positions are encoded once, at the input, and steps are not encoded (Vaswani et al. 2017).
    """
    return replaced(
        config,
        {
            "model.step.tied": False,
            "model.halting.side": "none",
            "model.coordinates.injection": "input",
            "model.coordinates.step": "none",
        },
    )


def small_transformer(config: RunConfig) -> RunConfig:
    """The Transformer at equal parameters: as deep as the base and narrower."""
    width, filter_width = SMALL_SIZES[config.recipe]
    return replaced(transformer(config), {"model.sizes.width": width, "model.sizes.filter_width": filter_width})


def halting(config: RunConfig) -> RunConfig:
    return replaced(config, {"model.halting.side": "both", "model.halting.bias": -1.0})


def twice_the_depth(config: RunConfig) -> RunConfig:
    """Dynamic halting with a cap T of twice the depth, so that it can take more steps than at a fixed depth.

    So it is in the paper, where up to 8.2 steps replace 6. The bias follows from T, so that positions take about all
    steps at first.
    """
    cap = 2 * universal(config).max_steps_of(decoder=False)
    changes = {"model.halting.side": "both", "model.depth.max_steps": cap, "model.halting.bias": None}
    return replaced(config, changes)


def norm_after_sums(config: RunConfig, *, rate: float = 1.0) -> RunConfig:
    """LayerNorm after the sums: DeepNorm, a warm-up twice as long, `rate` times the learning rate.

    Half of the rate is better on some tasks and worse on others; with the plain sum of the paper the models learn more
    slowly still (notebook/README.md).
    """
    changes = {
        "model.step.norm": "deep",
        "training.warmup_updates": 2 * config.training.warmup_updates,
        "training.learning_rate": rate * config.training.learning_rate,
    }
    return replaced(config, changes)


VARIANTS: dict[str, tuple[Callable[[RunConfig], RunConfig], str]] = {
    "lstm": (lstm, "LSTM"),
    "transformer": (transformer, "Transformer"),
    "transformer-small": (small_transformer, "Transformer, as many parameters as the UT"),
    "ut-halting": (halting, "UT, dynamic halting"),
    "ut-halting-2x": (twice_the_depth, "UT, dynamic halting, cap of twice the depth"),
    "ut-post-norm": (norm_after_sums, "UT, post-norm with DeepNorm"),
    "neural-gpu": (neural_gpu, "Neural GPU"),
}
"""End of the name of a recipe -> what it changes in its base, and its title."""


def changed(
    bases: Mapping[str, Recipe], change: Callable[[RunConfig], RunConfig], *, suffix: str, title: str
) -> dict[str, Recipe]:
    def variant(base: Recipe) -> Recipe:
        def recipe() -> RunConfig:
            config = base()
            return dataclasses.replace(change(config), recipe=f"{config.recipe}-{suffix}")

        recipe.__doc__ = f"{(base.__doc__ or '').split(chr(10))[0].rstrip('.')}: {title}."
        return recipe

    return {f"{name}-{suffix}": variant(base) for name, base in bases.items()}


def variants(bases: Mapping[str, Recipe], names: Mapping[str, Sequence[str]]) -> dict[str, Recipe]:
    """The recipes of `VARIANTS` by name; `names` has the bases of each end of a name."""
    return {
        name: recipe
        for suffix, (change, title) in VARIANTS.items()
        for name, recipe in changed(
            {base: bases[base] for base in names.get(suffix, ())}, change, suffix=suffix, title=title
        ).items()
    }
