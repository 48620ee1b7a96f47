"""JSON values to values of a type, strictly: the fields of files that other programs may have written."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from universal_transformer.errors import UserError
from universal_transformer.files import show

FEW = 10
"""At most so many names are listed in an error."""


def typed(value: Any, hint: Any, *, where: str, field: str = "") -> Any:
    """Return a JSON value as one of type `hint`; UserError says where (file, field), what is expected, what was found.

    A dataclass takes an object of exactly its fields, a tuple or list a list, a float whole numbers too; True and
    False are no numbers.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or (origin is Literal and value in arguments):
        return value
    if dataclasses.is_dataclass(hint):
        return _object(value, hint, where=where, field=field)
    if origin in (Union, types.UnionType):
        for option in arguments:
            try:
                return typed(value, option, where=where, field=field)
            except UserError:
                continue
    if origin is dict and isinstance(value, dict):
        return {
            key: typed(item, arguments[1], where=where, field=f"{field}.{key}") for key, item in value.items()
        }
    if origin in (tuple, list) and isinstance(value, list | tuple):
        any_number = origin is list or arguments[1:] == (...,)
        items = (arguments[0],) * len(value) if any_number else arguments
        if len(items) == len(value):
            parts = enumerate(zip(value, items, strict=True))
            return origin(
                typed(item, part, where=where, field=f"{field}[{index}]") for index, (item, part) in parts
            )
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and type(value) is int and abs(value) < 2**1000:
        return float(value)
    if type(value) is hint:
        return value
    wanted = listed(arguments) if origin is Literal else getattr(hint, "__name__", str(hint))
    raise UserError(f"{_place(where, field)}: expected {wanted}, found {show(value)}")


def check_names(value: Any, *, expected: Set[str], where: str, field: str = "") -> None:
    """Refuse what is not an object of exactly the `expected` fields."""
    place = _place(where, field)
    if not isinstance(value, dict):
        raise UserError(f"{place}: expected an object, found {show(value)}")
    for problem, names in (("unknown", value.keys() - expected), ("missing", expected - value.keys())):
        if names:
            # dozens of names would hide what is wrong
            hint = (
                f"fields: {listed(sorted(expected))}"
                if len(expected) <= FEW
                else "written by another version?"
            )
            found = listed(name if name.isidentifier() else show(name) for name in sorted(names))
            raise UserError(f"{place}: {problem}: {found}; {hint}")


def listed(names: Iterable[object]) -> str:
    """Return names for a message, with commas."""
    return ", ".join(map(str, names))


def _object(value: Any, kind: Any, *, where: str, field: str) -> Any:
    hints = get_type_hints(kind)
    names = {found.name for found in dataclasses.fields(kind) if found.init}
    check_names(value, expected=names, where=where, field=field)
    inside = f"{field}." if field else ""
    return kind(
        **{name: typed(value[name], hints[name], where=where, field=inside + name) for name in sorted(names)}
    )


def _place(where: str, field: str) -> str:
    return f"{where}: {field}" if field else where
