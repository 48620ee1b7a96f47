"""The one parser: the fields of a dataclass are options, and argparse reads them.

A command is a dataclass with a call. Its options, and those of a configuration (`cli.fields`), are made from the names,
types, defaults and docstrings of fields; an `OptionForm` says what these leave open. Groups of a field may be left
out where one field alone has the name: ``--model.depth.max-steps``, ``--model.max-steps`` and ``--max-steps`` are the
same. A boolean field has two options, ``--model.step.tied`` and ``--model.step.no-tied``. Every mistake is a UserError
of one line.
"""

import argparse
import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Protocol, TypeVar, Union, get_args, get_origin, runtime_checkable

from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show
from universal_transformer.typed import docstrings, hints, typed

WIDTH_OF_NAMES = 34
"""Columns of the names of options on a page of help."""


class Place(Enum):
    """Where the value of a field stands on the command line."""

    OPTION = "after its name"
    WORD = "alone, in the order of such fields"
    FIELDS = "all that follows the words and is no option of the command: fields of a configuration"
    ALL = "every argument as it was given"


@dataclass(frozen=True)
class OptionForm:
    """How a field is written, as a part of its type: ``Annotated[str, OptionForm("FOLDER")]``."""

    value: str = ""
    """What stands for its value in the help."""
    name: str = ""
    """Its name, if that is not the one of the field."""
    place: Place = Place.OPTION


@dataclass(frozen=True)
class Option:
    """A field of a command or of a configuration, as the command line has it."""

    field: str
    """Its name in the dataclass, with those of its groups: ``model.depth.max_steps``."""
    hint: Any
    default: Any
    """`dataclasses.MISSING` if it must be given."""
    text: str
    """What it means."""
    written: OptionForm = OptionForm()
    aliases: tuple[str, ...] = ()
    """Names that it has elsewhere."""

    @functools.cached_property
    def path(self) -> str:
        """The groups and the name by which it is written, with underscores."""
        return self.written.name or self.field.removesuffix("_")

    @property
    def name(self) -> str:
        return f"--{self.path.replace('_', '-')}"

    @property
    def nargs(self) -> str | int | None:
        """How many words follow it, as argparse has it."""
        parts = get_args(self.hint) if get_origin(self.hint) is tuple else ()
        if parts[1:] == (...,):
            return "+"
        return 0 if self.hint is bool else len(parts) or None

    @property
    def metavar(self) -> str:
        parts = get_args(self.hint) if get_origin(self.hint) is tuple else (self.hint,)
        if parts[1:] == (...,):
            word = self.written.value or _word(parts[0])
            return f"{word} [{word} ...]"
        return self.written.value or " ".join(map(_word, parts))

    def value(self, words: Sequence[str] | str, *, where: str) -> Any:
        """Return what the words after it say; UserError at `where` for another type or range."""
        if isinstance(words, str):
            return typed(convert_word(words, self.hint), self.hint, where=where)
        parts = get_args(self.hint)
        parts = parts[:1] * len(words) if parts[1:] == (...,) else parts
        values = [convert_word(word, part) for word, part in zip(words, parts, strict=True)]
        return typed(values, self.hint, where=where)

    def help(self, *, short: bool) -> str:
        """Return its text, or the first sentence, with its default."""
        text = " ".join(self.text.split())
        text = text.split(". ")[0] if short else text
        if self.default in (MISSING, None, "", (), False) or "default" in text:
            return text
        values = self.default if isinstance(self.default, tuple) else (self.default,)
        shown = " ".join("yes" if value is True else str(value) for value in values)
        return f"{text.removesuffix('.')} (default: {shown})"


@runtime_checkable
class Command(Protocol):
    """A dataclass of options that is called."""

    def __call__(self) -> int:
        """Do it and return the exit code."""


SomeCommand = TypeVar("SomeCommand", bound=Command)
HELP = Option("help", bool, False, "Show this page.")


def options_of(kind: Any, *, values: Any = None, prefix: str = "") -> Iterator[Option]:
    """Yield the option of every field of a dataclass and of the dataclasses in it, with its value in `values`."""
    texts = docstrings(kind)
    defaults = {
        field.name: field.default_factory() if field.default_factory is not MISSING else field.default
        for field in dataclasses.fields(kind)
    }
    for name, hint in hints(kind).items():
        value = defaults[name] if values is None else getattr(values, name)
        if dataclasses.is_dataclass(hint):
            yield from options_of(hint, values=value, prefix=f"{prefix}{name}.")
        else:
            stated = _stated(hint, optional=values is not None)
            yield Option(prefix + name, stated, value, texts.get(name, ""), _written(hint))


def parse(kind: type[SomeCommand], arguments: Sequence[str], *, name: str) -> SomeCommand | None:
    """Return the command that the arguments write; None after its help has been printed."""
    prog, options = f"ut {name}", list(options_of(kind))
    arguments = ["--help" if argument == "-h" else argument for argument in arguments]
    named = [option for option in options if option.written.place is Place.OPTION]
    own_help = any(option.field == "help" for option in named)
    values, rest = read(arguments, named if own_help else [*named, HELP], prog=prog)
    if not own_help and values.pop("help", False):
        first = vars(kind)["__annotations__"]
        own = sorted(options, key=lambda option: option.written.place is Place.OPTION and option.field not in first)
        print(page(prog, kind.__doc__ or "", {"": [*own, HELP]}))
        return None
    count = next((place for place, word in enumerate(rest) if is_name(word)), len(rest))
    words, rest = rest[:count], rest[count:]
    for option in options:
        if option.written.place is Place.WORD and words:
            taken = len(words) if option.nargs == "+" else 1
            text = words[:taken] if option.nargs else words[0]
            values[option.field] = option.value(text, where=option.metavar)
            words = words[taken:]
        elif option.written.place is Place.FIELDS:
            values[option.field], words, rest = (*words, *rest), [], []
        elif option.written.place is Place.ALL:
            values[option.field] = tuple(arguments)
    refuse_rest([*words, *rest], named, prog=prog)
    if missing := [option for option in options if option.default is MISSING and option.field not in values]:
        names = [option.metavar if option.written.place is Place.WORD else option.name for option in missing]
        raise UserError(f"{prog}: required: {', '.join(names)}; {prog} --help shows the options")
    return kind(**values)


def read(arguments: Sequence[str], options: Sequence[Option], *, prog: str) -> tuple[dict[str, Any], list[str]]:
    """Return field -> value of those options that `arguments` name, and the other arguments in their order."""
    parser = _Reader(prog=prog, add_help=False, allow_abbrev=False)
    for name in dict.fromkeys(argument.partition("=")[0] for argument in arguments if is_name(argument)):
        found, negated = resolve(name, options)
        if len(found) > 1:
            raise UserError(f"{name} is the name of several fields: write {_either(found)}")
        for option in found:
            parser.add_argument(
                name,
                action=_Store,
                dest=option.field,
                nargs=option.nargs,
                option=option,
                negated=negated,
                default=argparse.SUPPRESS,
            )
    known, rest = parser.parse_known_args(arguments)
    return vars(known), rest


def resolve(name: str, options: Sequence[Option]) -> tuple[list[Option], bool]:
    """Return the options that a name may stand for, and whether it says no to a boolean field."""
    *groups, last = name.lstrip("-").replace("-", "_").split(".")
    found = _matching(groups, last, options)
    negated = not found and last.startswith("no_")
    if negated:
        found = _matching(groups, last.removeprefix("no_"), [option for option in options if option.hint is bool])
    exact = [option for option in found if option.path == ".".join((*groups, option.path.rpartition(".")[2]))]
    exact += [option for option in found if not groups and last in option.aliases]
    return exact[:1] or found, negated


def refuse_rest(rest: Sequence[str], options: Sequence[Option], *, prog: str) -> None:
    """UserError for the first argument that no option took; one that looks like an option gets near names."""
    if not rest:
        return
    if not is_name(rest[0]):
        raise UserError(f"unexpected {show(rest[0])}; {prog} --help shows what may follow")
    name = rest[0].partition("=")[0]
    raise UserError(f"unknown option {name}{near(name, options)}; {prog} --help shows the options")


def near(name: str, options: Sequence[Option]) -> str:
    """Return `` (did you mean …?)`` for an unknown option: of the same name elsewhere, of a like name, or meaning."""
    *groups, last = name.lstrip("-").replace("-", "_").split(".")
    if elsewhere := _matching([], last, options):
        return f" (did you mean {_either(elsewhere)}?)"
    paths = [option.path.replace("_", "-").split(".") for option in options]
    full = ["--" + ".".join(path) for path in paths]
    short = ["--" + path[-1] for path in paths]
    inside = [f"--{group}.{path[-1]}" for path in paths for group in path[:-1]]
    for likeness in (0.75, 0.6):
        spelled = suggestion(name, [*inside, *full] if groups else short, likeness=likeness)
        if guess := spelled or suggestion(name, full, likeness=likeness):
            return guess
        if meant := _of_like_meaning(name, options):
            return f" (did you mean {_either(meant)}?)"
    return ""


def is_name(argument: str) -> bool:
    """Whether an argument is the name of an option: neither a negative number nor ``-``, standard input."""
    return argument.startswith("-") and argument != "-" and not isinstance(convert_word(argument, float), float)


def convert_word(word: str, hint: Any) -> Any:
    """Return the number, None or choice that a word says; the word itself if it says none."""
    if get_origin(hint) is Annotated:
        return convert_word(word, get_args(hint)[0])
    if get_origin(hint) is Literal:
        return next((choice for choice in get_args(hint) if str(choice) == word), word)
    if type(None) in get_args(hint) and word.lower() == "none":
        return None
    for part in get_args(hint) or (hint,):
        number = get_args(part)[0] if get_origin(part) is Annotated else part
        if number in (int, float):
            with suppress(ValueError):
                return number(word)
    return Path(word) if hint is Path else word


def page(
    prog: str,
    description: str,
    groups: Mapping[str, Sequence[Option]],
    *,
    usage: str = "",
    epilog: str = "",
    short: bool = False,
) -> str:
    words = [option for options in groups.values() for option in options if option.written.place is Place.WORD]
    shown = [option.metavar if option.default is MISSING else f"[{option.metavar}]" for option in words]
    layout = functools.partial(argparse.HelpFormatter, max_help_position=WIDTH_OF_NAMES)
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=usage or " ".join((prog, *shown, "[options]")),
        description=description.replace("%", "%%"),
        epilog=epilog.replace("%", "%%") or None,
        add_help=False,
        formatter_class=layout,
    )
    for title, options in groups.items():
        group = parser.add_argument_group(title or "options")
        for option in options:
            text = option.help(short=short).replace("%", "%%")
            if option.written.place is Place.WORD:
                group.add_argument(option.field, metavar=option.metavar, help=text)
            elif option.written.place is Place.OPTION:
                names = ["-h", option.name] if option.field == "help" else [option.name]
                if option.hint is not bool:
                    group.add_argument(*names, metavar=option.metavar, help=text)
                    continue
                head, dot, last = option.name.removeprefix("--").rpartition(".")
                names += [f"--{head}{dot}no-{last}"] * (option.default is True)
                group.add_argument(*names, action="store_true", help=text)
    return parser.format_help().rstrip()


class _Reader(argparse.ArgumentParser):
    """Reads options; its errors are UserErrors."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._negative_number_matcher = re.compile(r"-(\.?\d|inf|nan)")  # also -1e-4, which is a value

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message.removeprefix('argument ')}; {self.prog} --help shows the options")


class _Store(argparse.Action):
    """Keeps the value of an option, checked against its type and range; of several values each is added."""

    def __init__(self, *, option: Option, negated: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self.option, self.negated = option, negated

    def __call__(self, _: Any, namespace: argparse.Namespace, words: Any, name: str | None = None) -> None:
        value: Any = not self.negated
        if self.option.hint is not bool:
            value = self.option.value(words, where=name or "")
        if self.nargs == "+":
            value = getattr(namespace, self.dest, ()) + value
        elif getattr(namespace, self.dest, value) != value:
            raise UserError(f"{name} contradicts an earlier value of {self.option.name}: write one of them")
        setattr(namespace, self.dest, value)


def _matching(groups: Sequence[str], last: str, options: Iterable[Option]) -> list[Option]:
    """Return the options whose path ends in `last`, or which have this alias, with `groups` before it in this order."""

    def fits(option: Option) -> bool:
        *before, name = option.path.split(".")
        rest = iter(before)
        return last in (name, *option.aliases) and all(group in rest for group in groups)

    return [option for option in options if fits(option)]


def _of_like_meaning(name: str, options: Sequence[Option], *, most: int = 3) -> list[Option]:
    """Return the options whose names and texts have rare words in common with `name`; beginnings are compared."""
    names = [_beginnings(f"{option.path} {' '.join(option.aliases)}") for option in options]
    texts = [_beginnings(option.text) for option in options]
    frequency = Counter(word for text, path in zip(texts, names, strict=True) for word in text | path)
    scores = [
        sum((3 if word in path else word in text) / max(frequency[word], 1) for word in _beginnings(name))
        for text, path in zip(texts, names, strict=True)
    ]
    best = sorted(range(len(options)), key=lambda place: -scores[place])[:most]
    return [options[place] for place in best if scores[place] > max(scores) / 2]


def _beginnings(text: str) -> set[str]:
    return {word[:4] for word in re.findall(r"[a-z]+|\d+", text.lower()) if len(word) > 1}


def _either(options: Iterable[Option]) -> str:
    return " or ".join(option.name for option in options)


def _written(hint: Any) -> OptionForm:
    """Return the `OptionForm` in a type; that of a part if the whole has none."""
    if isinstance(hint, OptionForm):
        return hint
    return next((found for part in get_args(hint) if (found := _written(part)) != OptionForm()), OptionForm())


def _stated(hint: Any, *, optional: bool) -> Any:
    """Return a type without its `OptionForm`, and without None unless `optional`: to leave an option out says None."""
    parts = get_args(hint)
    if parts and isinstance(parts[-1], OptionForm):
        return _stated(Annotated[parts[:-1]] if parts[2:] else parts[0], optional=optional)
    if optional or type(None) not in parts:
        return hint
    return _stated(Union[tuple(part for part in parts if part is not type(None))], optional=False)  # noqa: UP007


def _word(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _word(parts[0])
    if origin is Literal:
        return f"{{{','.join(map(str, parts))}}}"
    if parts:
        return "|".join(_word(part) for part in parts)
    return {int: "N", float: "X", Path: "PATH", type(None): "none"}.get(hint, "TEXT")
