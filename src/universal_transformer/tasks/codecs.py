"""Codecs that are saved field by field: plain values in ``codec.json``, each tokenizer in a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from universal_transformer.data.example import Example, Frames
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import saved_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import read_json, show, show_path, write_json
from universal_transformer.typed import check_names, hints, typed

CODEC_FILE = "codec.json"
Saved = TypeVar("Saved", bound="SavedCodec")


class SavedCodec:
    """Base of a dataclass whose fields are JSON values or tokenizers; `kind` is its name in ``codec.json``.

    The tokenizer of a field ``name`` is saved as ``name.json``. ``__post_init__`` may refuse values with a UserError.
    """

    kind: ClassVar[str]

    def save(self, folder: Path) -> None:
        """Write the tokenizers, then ``codec.json``, each whole or not at all."""
        plain = {}
        kind: Any = type(self)
        for name in hints(kind):
            value = getattr(self, name)
            if isinstance(value, Tokenizer):
                value.save(folder / f"{name}.json")
            else:
                plain[name] = value
        write_json(folder / CODEC_FILE, {"kind": self.kind, **plain})

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        """Return no tokens: rows are taken over from a run only if its codec is equal."""
        return {}

    @classmethod
    def load(cls: type[Saved], folder: Path) -> Saved:
        """Read what `save` wrote. UserError names the file, the field, and what is expected."""
        where = show_path(folder / CODEC_FILE)
        kind: Any = cls
        content, fields = read_kind(folder, kind=cls.kind), hints(kind)
        tokenizers = {name for name, hint in fields.items() if hint is Tokenizer}
        check_names(content, expected=fields.keys() - tokenizers, where=where)
        values = {name: typed(value, fields[name], where=where, field=name) for name, value in content.items()}
        values |= {name: saved_tokenizer(folder, name) for name in sorted(tokenizers)}
        try:
            return cls(**values)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error


@runtime_checkable
class TextReader(Protocol):
    """A codec of text that shows how it reads it."""

    @property
    def vocabulary(self) -> str:
        """Numbers of tokens, in words."""

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        """Return the tokens of source and target with their blanks visible."""


@runtime_checkable
class FileReader(Protocol):
    """A codec whose lines of input are paths of files, such as sounds."""

    suffixes: ClassVar[tuple[str, ...]]
    """Endings of these files, in small letters."""

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield the example of each file."""


@runtime_checkable
class FileWriter(Protocol):
    """A codec whose answers are files, such as pictures or sounds."""

    suffix: ClassVar[str]
    """Ending of these files."""

    def content(self, target: Any) -> bytes:
        """Return the content of the file of an answer, ids or frames as its model writes them."""


@runtime_checkable
class LinesReader(Protocol):
    """A codec whose inputs have several lines each, such as stories: a file of them is read as a whole."""

    several_lines: ClassVar[Literal[True]]


@runtime_checkable
class CharacterReader(Protocol):
    """A codec of text that says whether a token is one character."""

    @property
    def by_character(self) -> bool:
        """Whether it is."""


@runtime_checkable
class ActingCodec(Protocol):
    """A codec of actions in an environment."""

    def example(self, observations: Frames) -> Example:
        """Return the example of the last of all observations [time, feature] of an episode up to now."""


def read_sources(
    lines: Iterable[tuple[int, str]], tokenizer: Tokenizer, *, name: str, what: str, limit: int
) -> Iterator[Example]:
    """Yield the example of each line of the file `name` without a target: its ids and the end id.

    UserError for more than `limit` of them.
    """
    for number, text in lines:
        ids = (*tokenizer.encode(text), tokenizer.end_id)
        if len(ids) > limit:
            raise UserError(too_long(f"{name}:{number}", len(ids), what=what, limit=limit))
        yield Example(
            source=ids,
            target=(),
            unknown=tokenizer.unknown(text),
            notes=answer_notes(text, f"{name}:{number}"),
            padding_id=tokenizer.padding_id,
        )


def answer_notes(text: str, where: str) -> tuple[str, ...]:
    """Return a note if a line looks like one of a training file, whose answer would be read as text."""
    looks = "a tab" if "\t" in text else "a JSON object" if text.startswith("{") and text.endswith("}") else ""
    return (f"{where}: {looks}, which is read as text; a line is the text alone, without its answer",) if looks else ()


def too_long(where: str, length: int, *, what: str, limit: int) -> str:
    """Return the message for a text of too many tokens."""
    return f"{where}: a {what} of {length} tokens; this run takes at most {limit} (--data.max-length of its training)"


def token_fields(
    architecture: str, *, size: int | None, target_size: int | None = None, num_classes: int | None = None
) -> dict[str, Any]:
    """Return the fields of a configuration that the data determine for a model whose inputs are tokens."""
    return {
        "architecture": architecture,
        "inputs.kind": "tokens",
        "vocabulary.size": size,
        "vocabulary.target_size": target_size,
        "vocabulary.num_classes": num_classes,
    }


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the fields of a configuration that say which ids of a tokenizer are no text."""
    ids = {"padding_id": tokenizer.padding_id, "start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
    return {f"vocabulary.{name}": index for name, index in ids.items()}


def read_kind(folder: Path, *, kind: str) -> dict[str, Any]:
    """Read the fields of a ``codec.json`` of one kind, without the kind."""
    content = read_json(folder / CODEC_FILE)
    if (found := content.pop("kind", None)) != kind:
        raise UserError(f'{show_path(folder / CODEC_FILE)}: kind: expected "{kind}", found {show(found)}')
    return content
