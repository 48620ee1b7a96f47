"""Values of declared types: the one check of what a file, the command line or a caller gives.

A dataclass declares types and ranges, ``batch_tokens: Annotated[int, Range(1)]``. `typed` turns a JSON value into one
of that type, `check` looks at the fields of an object that exists. Both name the field, what it expects and the value.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import math
import re
import textwrap
import types
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show

FEW = 15
"""An error lists at most this number of names."""
MOST = 2**31 - 1
"""The largest size that a field may have; an error names it only where it is exceeded."""
Object = TypeVar("Object")


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`, without `least` if `above` and without `most` if `below`."""

    least: int | float
    most: int | float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: int | float) -> bool:
        too_small = value <= self.least if self.above else value < self.least
        too_large = value >= self.most if self.below else value > self.most
        return not (too_small or too_large)

    def __str__(self) -> str:
        text = f"{'more than' if self.above else 'at least'} {_digits(self.least)}"
        if self.most < MOST:
            text += f" and {'below' if self.below else 'at most'} {_digits(self.most)}"
        return text


Count = Annotated[int, Range(0, MOST)]
"""A size or an id."""
Positive = Annotated[int, Range(1, MOST)]
DropoutRate = Annotated[float, Range(0, 1, below=True)]
NonNegative = Annotated[float, Range(0)]
Length = Annotated[int, Range(1, 100_000)]
"""Symbols, words or sentences of an example that is generated."""
AtLeastTwo = Annotated[int, Range(2, MOST)]
NumberOf = Annotated[int, Range(0, 2**63 - 1)]
Share = Annotated[float, Range(0, 1, above=True, below=True)]
"""A part of a whole that is neither empty nor all of it."""


def typed(value: Any, hint: Any, *, where: str, field: str = "") -> Any:
    """Return a JSON value as one of type `hint`; UserError says where (file, field), what is expected, what was found.

    A dataclass takes an object of all its fields, a tuple or list a list, a float whole numbers too. True and False are
    no numbers, and a number is finite.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or (origin is Literal and any(value == one and type(value) is type(one) for one in arguments)):
        return value
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            check(value, where=where, field=field)
            return value
        return _object(value, hint, where=where, field=field)
    if origin is Annotated:
        with contextlib.suppress(UserError):
            found = typed(value, arguments[0], where=where, field=field)
            if all(found in one for one in arguments[1:] if isinstance(one, Range)):
                return found
    elif origin in (Union, types.UnionType):
        for option in arguments:
            try:
                return typed(value, option, where=where, field=field)
            except UserError:
                continue
    elif origin is dict and isinstance(value, dict):
        return {
            typed(key, arguments[0], where=where, field=field): typed(
                item, arguments[1], where=where, field=f"{field}.{key}"
            )
            for key, item in value.items()
        }
    elif origin in (tuple, list) and isinstance(value, list | tuple):
        any_number = origin is list or arguments[1:] == (...,)
        items = (arguments[0],) * len(value) if any_number else arguments
        if len(items) == len(value):
            parts = enumerate(zip(value, items, strict=True))
            return origin(typed(item, part, where=where, field=f"{field}[{index}]") for index, (item, part) in parts)
    elif hint is Path and isinstance(value, str | Path):
        return Path(value)
    elif hint is float and type(value) is int and abs(value) < 2**1000:
        return float(value)
    elif isinstance(hint, type) and hint.__module__ != "builtins" and isinstance(value, hint):
        return value  # also of a subclass, which bool is of int
    elif type(value) is hint and not (hint is float and not math.isfinite(value)):
        return value
    guess = suggestion(value, map(str, arguments)) if origin is Literal and isinstance(value, str) else ""
    wanted = expected(hint)
    if type(value) is int and value > MOST and "at most" not in wanted:
        wanted = re.sub(r"whole number, at least [\d,]+", rf"\g<0> and at most {MOST:,}", wanted)
    raise UserError(f"{_place(where, field)}: expected {wanted}, found {show(value)}{guess}")


def check(value: Any, *, where: str = "", field: str = "") -> None:
    """UserError unless every field of a dataclass object is of its declared type and range."""
    inside = f"{field}." if field else ""
    kind: Any = type(value)
    for name, hint in hints(kind).items():
        typed(getattr(value, name), hint, where=where, field=inside + name)


def check_names(value: Any, *, expected: Set[str], where: str, field: str = "") -> None:
    """UserError unless `value` is an object of the `expected` fields and of no others."""
    place = _place(where, field)
    if not isinstance(value, dict):
        raise UserError(f"{place}: expected an object, found {show(value)}")
    for problem, names in (("unknown", value.keys() - expected), ("missing", expected - value.keys())):
        if names:
            # dozens of names would hide what is wrong
            few = len(expected) <= FEW
            hint = f"fields: {listed(sorted(expected))}" if few else "written by another version?"
            found = listed(name if name.isidentifier() else show(name) for name in sorted(names))
            guess = suggestion(min(names), expected) if problem == "unknown" else ""
            raise UserError(f"{place}: {problem}: {found}{guess}; {hint}")


@functools.cache
def hints(kind: Any) -> Mapping[str, Any]:
    found = get_type_hints(kind, include_extras=True)
    return {one.name: found[one.name] for one in dataclasses.fields(kind) if one.init}


@functools.cache
def docstrings(kind: Any) -> Mapping[str, str]:
    """Return the docstring below each field of a dataclass that has one; none for a class without source."""
    found: dict[str, str] = {}
    for base in [base for base in reversed(kind.__mro__) if "__annotations__" in vars(base)]:
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        body = next(node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match text:
                    case ast.Expr(value=ast.Constant(value=str(docstring))):
                        found[field.target.id] = inspect.cleandoc(docstring)
    return found


def leaves(kind: Any) -> dict[str, Any]:
    """Return the dotted path of every field of a dataclass and of the dataclasses in it, with its type."""
    found: dict[str, Any] = {}
    for name, hint in hints(kind).items():
        inside = leaves(hint) if dataclasses.is_dataclass(hint) else None
        found |= {name: hint} if inside is None else {f"{name}.{path}": leaf for path, leaf in inside.items()}
    return found


def replaced(value: Object, changes: Mapping[str, Any]) -> Object:
    """Return a dataclass object with the fields at dotted paths changed, all at once: ``{"depth.max_steps": 8}``."""
    direct: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for path, change in changes.items():
        name, dot, rest = path.partition(".")
        if dot:
            nested.setdefault(name, {})[rest] = change
        else:
            direct[name] = change
    direct |= {name: replaced(getattr(value, name), inside) for name, inside in nested.items()}
    return dataclasses.replace(value, **direct)  # type: ignore[type-var]


def expected(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        ranges = [str(one) for one in parts[1:] if isinstance(one, Range)]
        return ", ".join((expected(parts[0]), *ranges))
    if origin is Literal:
        return f"one of {listed(parts)}"
    if origin is tuple:
        count = "one or more values" if parts[1:] == (...,) else f"{len(parts)} values"
        return f"{count}, each {expected(parts[0])}"
    if origin in (Union, types.UnionType):
        return " or ".join(expected(part) for part in parts)
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    names |= {types.NoneType: "None", list: "a list", dict: "an object"}
    return names.get(origin or hint, getattr(hint, "__name__", str(hint)))


def listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))


def _object(value: Any, kind: Any, *, where: str, field: str) -> Any:
    wanted = hints(kind)
    check_names(value, expected=wanted.keys(), where=where, field=field)
    inside = f"{field}." if field else ""
    parts = {name: typed(value[name], hint, where=where, field=inside + name) for name, hint in wanted.items()}
    try:
        return kind(**parts)
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from None


def _place(where: str, field: str) -> str:
    separator = ": " if where and field and not field.startswith("[") else ""
    return f"{where}{separator}{field}"


def _digits(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
