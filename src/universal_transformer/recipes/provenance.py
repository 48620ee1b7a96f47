"""Where a figure comes from: machine, versions, commit, and the command that makes the same run."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import universal_transformer
from universal_transformer.data.text import show
from universal_transformer.errors import UserError
from universal_transformer.recipes import RECIPES
from universal_transformer.training.config import RunConfig
from universal_transformer.training.machine import processor

SECONDS = 20


@dataclass(frozen=True)
class Checkout:
    """The commit that the package's code is of."""

    commit: str | None
    """None: the code is in no git checkout, or there is no git."""
    clean: bool | None
    """Whether the package's files are as committed; None without a commit."""


@cache
def checkout() -> Checkout:
    """Return the commit of the code in use, looked up once: later changes on disk do not change what runs."""
    source = Path(universal_transformer.__file__).parent
    # a package installed inside someone else's checkout is not of that checkout
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        return Checkout(None, None)
    commit = _git(source, "rev-parse", "HEAD")
    changes = _git(source, "status", "--porcelain", "--", ".")
    return Checkout(commit, None if commit is None or changes is None else not changes)


def _git(folder: Path, *arguments: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            [program, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()


def hardware(*, threads: int, device: str) -> dict[str, str | int]:
    """Return processor, cores, the threads that were used, and the device, with the name of a GPU."""
    found: dict[str, str | int] = {
        "cpu": processor(),
        "cores": os.cpu_count() or 0,
        "threads": threads,
        "device": device,
    }
    if device == "cuda":
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Return the versions of Python, torch and this package."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "universal_transformer": universal_transformer.__version__,
    }


def train_command(config: RunConfig) -> str:
    """Return the ``ut train`` command whose configuration is `config`: its recipe, and the fields that differ.

    UserError for a recipe that ``ut train`` does not know.
    """
    if config.recipe not in RECIPES:
        raise UserError(f"recipe {show(config.recipe)}: none of ut recipes, so that no command trains it")
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
