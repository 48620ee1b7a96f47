"""One task, several models: the rows of a table out of one recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from universal_transformer.models.config import ModelConfig
from universal_transformer.recipes.baselines import with_lstm, with_neural_gpu
from universal_transformer.recipes.sizes import small_transformer_of, transformer_of
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import replaced

Recipe = Callable[[], RunConfig]
Change = Callable[[RunConfig], RunConfig]

TITLES: dict[str, str] = {
    "lstm": "LSTM",
    "neural-gpu": "Neural GPU",
    "transformer": "Transformer",
    "transformer-small": "Transformer, as many parameters as the UT",
    "ut": "Universal Transformer",
    "ut-halting": "UT, dynamic halting",
    "ours": "Ours",
}
"""Model of a row -> what a table calls it. Transformer alone: as wide and as deep as the UT, equal compute."""


def family(name: str, base: Recipe, *, models: Sequence[str], vocabulary_size: int) -> dict[str, Recipe]:
    """Return a recipe for each of `models`: `base`, called `name`, with its model replaced.

    The one of "ut" is `base` itself; the others are called NAME-MODEL. `vocabulary_size` is the one of the data,
    which equal parameters depend on.
    """
    changes: dict[str, Change] = {
        "lstm": with_lstm,
        "neural-gpu": with_neural_gpu,
        "transformer": lambda config: _with(config, transformer_of(_ours(config))),
        "transformer-small": lambda config: _with(
            config, small_transformer_of(_ours(config), vocabulary_size=vocabulary_size)
        ),
        "ut-halting": lambda config: _with(config, replaced(_ours(config), {"halting.side": "both"})),
    }
    return {
        model: base if model == "ut" else _with_model(name, base, model=model, change=changes[model])
        for model in models
    }


def changed(base: Recipe, *, change: Change, by: str) -> Recipe:
    """Return the recipe that makes `change` of `base`; `by` says in a summary what it is."""

    def recipe() -> RunConfig:
        return change(base())

    recipe.__doc__ = f"{(base.__doc__ or '').split(chr(10))[0].rstrip('.')}: {by}."
    return recipe


def _with_model(name: str, base: Recipe, *, model: str, change: Change) -> Recipe:
    def named(config: RunConfig) -> RunConfig:
        return dataclasses.replace(change(config), recipe=f"{name}-{model}")

    return changed(base, change=named, by=TITLES[model])


def _ours(config: RunConfig) -> ModelConfig:
    assert isinstance(config.model, ModelConfig), "a family begins with our own model"
    return config.model


def _with(config: RunConfig, model: ModelConfig) -> RunConfig:
    return dataclasses.replace(config, model=model)


def rows(families: Mapping[str, Mapping[str, Recipe]]) -> dict[str, Recipe]:
    """Return COLUMN/MODEL -> recipe."""
    return {f"{column}/{model}": one for column, found in families.items() for model, one in found.items()}


def by_recipe_name(found: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return the recipes by the names they have on the command line."""
    return {recipe().recipe: recipe for recipe in found.values()}
