"""``--group.field value`` into a run configuration.

The full name of a field has all its groups, ``--model.depth.max-steps``. Groups may be left out where one field alone
has that name: ``--model.max-steps``, ``--depth.max-steps`` and ``--max-steps`` are the same. A boolean field has two
options, ``--model.step.tied`` and ``--model.step.no-tied``. Every mistake is a UserError of one line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_origin

from universal_transformer.cli.arguments import convert_word
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show
from universal_transformer.models.components import VocabularyConfig
from universal_transformer.training.config import RunConfig
from universal_transformer.typed import expected, leaves, replaced, typed

GROUPS = ("data", "model", "training")
FROM_DATA = "model.vocabulary."
"""Fields that the data determine: they have no option."""


def override(config: RunConfig, arguments: Sequence[str], *, prog: str, also: Sequence[str] = ()) -> RunConfig:
    """Return `config` with the fields that `arguments` name changed; `also` are options for near matches."""
    values = given(config, arguments, prog=prog, also=also)
    return replaced(config, values) if values else config


def given(config: RunConfig, arguments: Sequence[str], *, prog: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """Return the path of each field that `arguments` name -> its new value."""
    hints = _fields(config)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option, words in _split(arguments, prog=prog):
        path, negated = _complete(option, hints, prog=prog, also=also)
        value = _value(option, words, hint=hints[path], negated=negated)
        if hints[path] is bool and path in values and values[path] != value:
            raise UserError(f"{sources[path]} and {option} contradict each other; write one of them")
        values[path], sources[path] = value, option
    return values


def without_effect(config: RunConfig, paths: Iterable[str]) -> list[str]:
    """Return those of the fields that change nothing in a model without halting."""
    unused = ("training.ponder_weight", "training.ponder_warmup_updates", "training.halting_delay")
    found = [path for path in paths if path in unused or path.startswith("model.halting.")]
    return [] if config.model.halts else [path for path in found if path != "model.halting.side"]


def print_help(config: RunConfig, *, prog: str, description: str) -> None:
    """Print every field with its docstring and its value in `config`."""
    import tyro

    registry = tyro.constructors.ConstructorRegistry()

    @registry.struct_rule
    def _hide(info: tyro.constructors.StructTypeInfo) -> tyro.constructors.StructConstructorSpec | None:
        if info.type is not VocabularyConfig:
            return None
        return tyro.constructors.StructConstructorSpec(instantiate=lambda: info.default, fields=())

    parts = [(group, type(getattr(config, group))) for group in GROUPS]
    kind = dataclasses.make_dataclass("Fields", parts)
    default = kind(**{group: getattr(config, group) for group in GROUPS})
    try:
        tyro.cli(kind, default=default, args=["--help"], prog=prog, description=description, registry=registry)
    except SystemExit:
        return


def _fields(config: RunConfig) -> dict[str, Any]:
    """Return the dotted path of every field that has an option -> its type."""
    found = {f"{group}.{path}": hint for group in GROUPS for path, hint in leaves(type(getattr(config, group))).items()}
    return {path: hint for path, hint in found.items() if not path.startswith(FROM_DATA)}


def _option(path: str) -> str:
    return f"--{path.replace('_', '-')}"


def _split(arguments: Sequence[str], *, prog: str) -> list[tuple[str, list[str]]]:
    """Return each option as it is written, with the values after it."""
    found: list[tuple[str, list[str]]] = []
    for argument in arguments:
        if argument.startswith("-") and len(argument) > 1 and not isinstance(convert_word(argument, float), float):
            name, equals, value = argument.partition("=")
            found.append((name, [value] if equals else []))
        elif found:
            found[-1][1].append(argument)
        else:
            raise UserError(f"unexpected {show(argument)}; a field is written --name value ({prog} --help)")
    return found


def _complete(option: str, hints: dict[str, Any], *, prog: str, also: Sequence[str]) -> tuple[str, bool]:
    """Return the path of the field that `option` stands for, and whether it says no to a boolean field."""
    *groups, name = option.removeprefix("--").replace("-", "_").split(".")
    candidates = _matches(groups, name, hints)
    negated = not candidates and name.startswith("no_")
    if negated:
        booleans = {path: hint for path, hint in hints.items() if hint is bool}
        candidates = _matches(groups, name.removeprefix("no_"), booleans)
    exact = [path for path in candidates if path == ".".join((*groups, path.rpartition(".")[2]))]
    if len(candidates) == 1 or exact:
        return (exact or candidates)[0], negated
    if candidates:
        raise UserError(f"{option} is the name of several fields: write {_either(candidates)}")
    if _matches(groups, name, [f"{FROM_DATA}{path}" for path in leaves(VocabularyConfig)]):
        raise UserError(f"{option}: the tokenizer and the data determine it; there is no such option")
    if elsewhere := _matches([], name, hints):
        raise UserError(f"unknown field {option} (did you mean {_either(elsewhere)}?)")
    full = [_option(path) for path in hints]
    short = {f"--{known.rpartition('.')[2]}" for known in full}
    last_two = {f"--{'.'.join(known[2:].split('.')[-2:])}" for known in full}
    inside = [*last_two, *(f"--{known[2:].split('.')[0]}.{known.rpartition('.')[2]}" for known in full)]
    guess = suggestion(option, [*inside, *full] if groups else [*short, *also]) or suggestion(option, [*full, *also])
    raise UserError(f"unknown field {option}{guess}; {prog} --help lists all")


def _matches(groups: Sequence[str], name: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that end in `name` and have `groups` before it, in this order."""

    def fits(path: str) -> bool:
        *before, last = path.split(".")
        rest = iter(before)
        return last == name and all(group in rest for group in groups)

    return [path for path in paths if fits(path)]


def _either(paths: Iterable[str]) -> str:
    return " or ".join(map(_option, paths))


def _value(option: str, words: Sequence[str], *, hint: Any, negated: bool) -> Any:
    """Return the value that `words` say, checked against the type and the range of the field."""
    if hint is bool:
        if words:
            groups, dot, name = option.removeprefix("--").rpartition(".")
            other = f"--{groups}{dot}{name.removeprefix('no-') if negated else f'no-{name}'}"
            raise UserError(f"{option} takes no value, found {show(words[0])}: write {option}, or {other} for no")
        return not negated
    parts = get_args(hint) if get_origin(hint) is tuple else (hint,)
    if parts[1:] == (...,):
        parts = parts[:1] * max(1, len(words))
    if len(words) != len(parts):
        found = f"{len(words)} value{'s' * (len(words) != 1)}" if words else "no value"
        raise UserError(f"{option}: found {found}, expected {expected(hint)}")
    if get_origin(hint) is not tuple:
        return typed(convert_word(words[0], hint), hint, where=option)
    return typed([convert_word(word, part) for word, part in zip(words, parts, strict=True)], hint, where=option)
