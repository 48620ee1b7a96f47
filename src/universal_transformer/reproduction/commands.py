"""The command that repeats a recorded run."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from universal_transformer.data.text import show
from universal_transformer.errors import UserError
from universal_transformer.recipes import RECIPES
from universal_transformer.training.config import RunConfig


def train_command(config: RunConfig) -> str:
    """Return the ``ut train`` command whose configuration is `config`: its recipe, and the fields that differ.

    Raises UserError for a recipe that ``ut train`` does not know.
    """
    if config.recipe not in RECIPES:
        raise UserError(
            f"recipe {show(config.recipe)}: not listed by ut recipes, so that no command trains it"
        )
    recipe = RECIPES[config.recipe]()
    options: list[str] = []
    for group in ("data", "model", "training"):
        ours, theirs = getattr(config, group), getattr(recipe, group)
        for field in fields(ours):
            value = getattr(ours, field.name)
            if value != getattr(theirs, field.name):
                options += _option(f"{group}.{field.name.replace('_', '-')}", value)
    return shlex.join(["ut", "train", config.recipe, *options])


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--{name.replace('.', '.no-', 1)}"]
    values = value if isinstance(value, tuple) else (value,)
    return [f"--{name}", *map(_text, values)]


def _text(value: Any) -> str:
    """Return 2.0 as 2, and other numbers with all their digits."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
