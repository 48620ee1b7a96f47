"""The command that repeats a recorded run."""

from __future__ import annotations

import shlex
from operator import attrgetter
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.files import from_here, show
from universal_transformer.recipes import RECIPES
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import leaves


def train_command(config: RunConfig) -> str:
    """Return the ``ut train`` command whose configuration is `config`: its recipe, and the fields that differ.

    Raises UserError for a recipe that ``ut train`` does not know.
    """
    if config.recipe not in RECIPES:
        raise UserError(f"recipe {show(config.recipe)}: not listed by ut recipes, so that no command trains it")
    recipe = RECIPES[config.recipe]()
    options: list[str] = []
    for group in ("data", "model", "training"):
        ours, theirs = getattr(config, group), getattr(recipe, group)
        for path in leaves(type(ours)):
            value = attrgetter(path)(ours)
            if value != attrgetter(path)(theirs):
                options += _option(f"{group}.{path}".replace("_", "-"), value)
    options += ["--from", from_here(config.warm_start.run)] if config.warm_start else []
    return shlex.join(["ut", "train", config.recipe, *options])


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        groups, _, last = name.rpartition(".")
        return [f"--{name}" if value else f"--{groups}.no-{last}"]
    values = value if isinstance(value, tuple) else (value,)
    # 2.0 is written as 2, and other numbers with all their digits
    texts = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
    return [f"--{name}", *map(str, texts)]
