"""What a user can get wrong."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any


class UserError(ValueError):
    """A wrong argument, field or file.

    The message is one line that says what is wrong, where, and what is allowed; the command line prints it
    without a traceback.
    """


def optional(module: str, *, needed: str, extra: str) -> Any:
    """Import a module of a package that an extra installs; where it is missing, UserError with what is `needed`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"{needed}: run pip install 'universal-transformer[{extra}]'") from error


def suggestion(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return `` (did you mean …?)``, or nothing if no known name is near: `likeness` is 1 for equal names."""
    found = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=likeness)
    return f" (did you mean {' or '.join(found)}?)" if found else ""
