"""What a clone has next to the library and is not installed: the packages `paper` and `benchmarks`."""

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from types import ModuleType

from universal_transformer.errors import UserError

NOT_INSTALLED = ("paper.", "benchmarks.")
"""How the names of their modules begin."""
CLONE = Path(__file__).parents[3]
"""The clone, if this package is imported from its ``src``."""


def in_clone(package: str) -> bool:
    """Whether a package stands next to this one's ``src``."""
    return (CLONE / "src").is_dir() and (CLONE / package / "__init__.py").is_file()


def from_clone(module: str, *, command: str) -> ModuleType:
    """Import a module of a package that is not installed; in an installed package UserError says where to get it."""
    if not in_clone(module.partition(".")[0]):
        raise UserError(f"ut {command}: not part of the installed package; run it in a clone of {_address()}")
    if str(CLONE) not in sys.path:
        sys.path.append(str(CLONE))
    return import_module(module)


def _address() -> str:
    try:
        labelled = metadata("universal-transformer").get_all("Project-URL") or []
    except PackageNotFoundError:
        labelled = []
    addresses = dict(line.split(", ", 1) for line in labelled)
    return addresses.get("Repository", "the project's repository")
