"""The command that repeats a recorded run."""

from __future__ import annotations

import dataclasses
import shlex
from operator import attrgetter
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.files import from_here, show
from universal_transformer.manifest import MODEL
from universal_transformer.recipes import RECIPES
from universal_transformer.runs.folder import CONFIG
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import leaves


def train_command(config: RunConfig) -> str:
    """Return the ``ut train`` command whose configuration is `config`: its recipe, and the fields that differ.

    A second stage is ``ut train RUN --stage halting`` and the fields that differ. Raises UserError for a recipe that
    ``ut train`` does not know.
    """
    if config.recipe not in RECIPES:
        raise UserError(f"recipe {show(config.recipe)}: not listed by ut recipes, so that no command trains it")
    staged = config.warm_start if config.training.stage == "halting" else None
    base = _staged(config, Path(staged.run)) if staged else RECIPES[config.recipe]()
    options: list[str] = []
    for group in ("data", "model", "training"):
        ours, theirs = getattr(config, group), getattr(base, group)
        for path in leaves(type(ours)):
            value = attrgetter(path)(ours)
            if not path.startswith("vocabulary.") and value != attrgetter(path)(theirs):
                options += _option(f"{group}.{path}".replace("_", "-"), value)
    if staged:
        return shlex.join(["ut", "train", from_here(staged.run), "--stage", "halting", *options])
    options += ["--from", from_here(config.warm_start.run)] if config.warm_start else []
    return shlex.join(["ut", "train", config.recipe, *options])


def _staged(config: RunConfig, run: Path) -> RunConfig:
    """Return what ``ut train RUN --stage halting`` begins with; of a run that is gone, with the rest of `config`."""
    from universal_transformer.training.halting_schedule import halting_model, halting_training, second_stage

    if (run / CONFIG).is_file() and (run / MODEL).is_dir():
        return second_stage(RunConfig.load(run / CONFIG), run)
    return dataclasses.replace(
        config, model=halting_model(config.model, run=run), training=halting_training(config.training)
    )


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        groups, _, last = name.rpartition(".")
        return [f"--{name}" if value else f"--{groups}.no-{last}"]
    values = value if isinstance(value, tuple) else (value,)
    # 2.0 is written as 2, and other numbers with all their digits
    texts = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
    return [f"--{name}", *map(str, texts)]
