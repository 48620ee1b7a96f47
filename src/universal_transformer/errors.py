"""What a user can get wrong."""

import difflib
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from typing import Any


class UserError(ValueError):
    """A wrong argument, field or file.

    The message is one line that says what is wrong, where, and what is allowed; the command line prints it
    without a traceback.
    """


def refuse(*checks: tuple[object, str], at: str = "") -> None:
    """UserError with the text of the first check whose condition holds; `at`, a file or a field, stands before it."""
    for condition, text in checks:
        if condition:
            raise UserError(f"{at}: {text}" if at else text)


def refuse_fields(config: object, rules: Iterable[tuple[str, bool, str]]) -> None:
    """UserError for the first path of a field whose value does not fit the other fields, with the remedy."""
    for path, wrong, remedy in rules:
        if wrong:
            raise refusal(path, attrgetter(path)(config), remedy)


def refusal(field: str, value: object, remedy: str) -> UserError:
    return UserError(f"{field}={value!r}: {remedy}")


def optional(module: str, *, needed: str, extra: str) -> Any:
    """Import a module of a package that an extra installs; where it is missing, UserError with what is `needed`."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a shared library of it is missing
        raise UserError(f"{needed}: run pip install 'universal-transformer[{extra}]'") from error


def suggestion(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return `` (did you mean …?)``, or nothing if no known name is near: `likeness` is 1 for equal names."""
    found = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=3, cutoff=likeness)
    return f" (did you mean {' or '.join(found)}?)" if found else ""
