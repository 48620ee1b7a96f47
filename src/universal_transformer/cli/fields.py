"""``--group.field value`` into a run configuration: names are completed and checked here, values by tyro.

A field may be written without its group where one group alone has it: ``--max-steps 8`` is
``--model.max-steps 8``. Whatever is wrong is a UserError of one line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from universal_transformer.errors import UserError, near
from universal_transformer.files import show
from universal_transformer.training.config import RunConfig

GROUPS = ("data", "model", "training")


@dataclass(frozen=True)
class _Given:
    """One option as it was typed, its full name, and what followed it."""

    typed: str
    option: str
    values: tuple[str, ...]


def override(
    config: RunConfig, arguments: Sequence[str], *, prog: str, also: Sequence[str] = ()
) -> RunConfig:
    """Return `config` with the fields that `arguments` name changed; `also` are options for near matches."""
    given = {one.option: one for one in _read(config, arguments, prog=prog, also=also)}
    if not given:
        return config
    for one in given.values():
        other = given.get(one.option.replace(".no-", ".", 1))
        if other is not None and other is not one:
            raise UserError(f"{other.typed} and {one.typed}: yes and no to one field; write one of them")
    try:
        return _parse(config, list(given.values()))
    except SystemExit as stop:
        raise _explain(config, list(given.values()), stop) from None


def print_help(config: RunConfig, *, prog: str, description: str) -> None:
    """Print every field with its docstring and its value in `config`."""
    try:
        _tyro(config, ["--help"], prog=prog, description=description, silent=False)
    except SystemExit:
        return


def has_field(config: RunConfig, option: str) -> bool:
    """Whether `option`, such as "--data.data-dir", is a field of this configuration."""
    return option in _options(config)


def _options(config: RunConfig) -> dict[str, Any]:
    """Full name of every option -> type of its field."""
    return {
        f"--{group}.{name.replace('_', '-')}": hint
        for group in GROUPS
        for name, hint in get_type_hints(type(getattr(config, group))).items()
        if name in {field.name for field in dataclasses.fields(getattr(config, group))}
    }


def _read(config: RunConfig, arguments: Sequence[str], *, prog: str, also: Sequence[str]) -> list[_Given]:
    """Split arguments into options with their values, names completed, numbers of values checked."""
    hints = _options(config)
    found: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if argument.startswith("-") and len(argument) > 1 and not _is_number(argument):
            name, equals, value = argument.partition("=")
            found.append((name, [value] if equals else []))
        elif found:
            found[-1][1].append(argument)
        else:
            raise UserError(f"unexpected {show(argument)}; a field is written --name value ({prog} --help)")
    given = []
    for typed, values in found:
        option = _complete(typed, hints, prog=prog, also=also)
        _check_count(
            typed, hints[option.replace(".no-", ".")] if option not in hints else hints[option], values
        )
        given.append(_Given(typed=typed, option=option, values=tuple(values)))
    return given


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _complete(typed: str, hints: dict[str, Any], *, prog: str, also: Sequence[str]) -> str:
    """Return the full option that `typed` stands for, ``--group.no-field`` for a boolean's other side."""
    known = {option: option for option in hints}
    known |= {option.replace(".", ".no-", 1): option for option, hint in hints.items() if hint is bool}
    name = typed.replace("_", "-")
    if name in known:
        return name
    short = [option for option in known if "." in option and f"--{option.split('.', 1)[1]}" == name]
    if len(short) == 1:
        return short[0]
    if short:
        raise UserError(f"{typed} is in more than one group: write {' or '.join(short)}")
    unique = {f"--{option.split('.', 1)[1]}" for option in known}
    # without its group first: that is how most people type a field, and it is nearer to what they meant
    group, dot, field = name.removeprefix("--").partition(".")
    if dot and (elsewhere := [option for option in hints if option.endswith(f".{field}")]):
        raise UserError(f"unknown field {typed} (did you mean {' or '.join(elsewhere)}?)")
    candidates = known if dot and group in GROUPS else unique | set(also)
    guess = near(name, candidates) or near(name, [*known, *also])
    raise UserError(f"unknown field {typed}{guess}; {prog} --help lists all")


def _check_count(typed: str, hint: Any, values: list[str]) -> None:
    """Refuse too few or too many values."""
    if hint is bool:
        if values:
            other = typed.replace("--", "--no-", 1) if "." not in typed else typed.replace(".", ".no-", 1)
            raise UserError(
                f"{typed} takes no value, found {show(values[0])}: write {typed}, or {other} for no"
            )
        return
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        wanted = None if parts[1:] == (...,) else len(parts)
        if (wanted is None and values) or len(values) == wanted:
            return
    elif len(values) == 1:
        return
    found = f"{len(values)} value{'s' * (len(values) != 1)}" if values else "no value"
    raise UserError(f"{typed}: found {found}, expected {_expected(hint)}")


def _expected(hint: Any) -> str:
    """Say in words what a type takes."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if origin is tuple:
        count = "one or more values" if parts[1:] == (...,) else f"{len(parts)} values"
        return f"{count}, each {_expected(parts[0])}"
    if origin in (Union, types.UnionType):
        return " or ".join(_expected(part) for part in parts)
    names = {int: "a whole number", float: "a number", str: "text", Path: "a path", types.NoneType: "None"}
    return names.get(hint, str(hint))


def _parse(config: RunConfig, given: Sequence[_Given]) -> RunConfig:
    arguments: list[str] = []
    for one in given:
        # "=" keeps a single value that begins with "-" from being taken for an option
        arguments += [f"{one.option}={one.values[0]}"] if len(one.values) == 1 else [one.option, *one.values]
    parsed = _tyro(config, arguments, prog="ut train", description=None, silent=True)
    return dataclasses.replace(config, data=parsed.data, model=parsed.model, training=parsed.training)


def _tyro(
    config: RunConfig, arguments: list[str], *, prog: str, description: str | None, silent: bool
) -> Any:
    # the classes of this configuration's own groups, so that any task can be among them
    groups = {group: type(getattr(config, group)) for group in GROUPS}
    fields = dataclasses.make_dataclass("Fields", groups.items(), frozen=True, kw_only=True)
    fields.__doc__ = "A field may be written without its group where one group alone has it: --max-steps 8."
    with contextlib.redirect_stderr(io.StringIO()) if silent else contextlib.nullcontext():
        return tyro.cli(
            fields,
            default=fields(data=config.data, model=config.model, training=config.training),
            args=arguments,
            prog=prog,
            description=description,
            console_outputs=not silent,
        )


def _explain(config: RunConfig, given: Sequence[_Given], stop: SystemExit) -> UserError:
    """Say what tyro refused: a check of a configuration's own, or the first value that does not parse."""
    if (refusal := _refusal(stop)) is not None:
        return refusal
    hints = _options(config)
    for one in given:
        try:
            _parse(config, [one])
        except SystemExit as alone:
            if _refusal(alone) is not None:
                continue  # it parses, and only goes with other fields
            found = " ".join(map(show, one.values))
            return UserError(
                f"{one.typed} {found}: expected {_expected(hints[one.option])}{_nearest(one, hints)}"
            )
    return UserError(f"these values do not go together: {' '.join(one.typed for one in given)}")


def _refusal(stop: SystemExit) -> UserError | None:
    """Return the check of a configuration's own that made tyro stop; None if a value did not parse."""
    error: BaseException | None = stop
    while error is not None:
        if isinstance(error, UserError):
            return error
        error = error.__context__
    return None


def _nearest(one: _Given, hints: dict[str, Any]) -> str:
    hint = hints[one.option]
    if get_origin(hint) is not Literal or len(one.values) != 1:
        return ""
    found = difflib.get_close_matches(one.values[0], list(map(str, get_args(hint))), n=1)
    return f" (did you mean {found[0]}?)" if found else ""
