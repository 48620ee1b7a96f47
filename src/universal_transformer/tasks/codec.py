"""Text to ids and back: a side that a model reads, and one that it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from universal_transformer.data.example import NO_CLASS, PADDING, Example, ids_of
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.data.tokenizer_files import saved_tokenizer
from universal_transformer.errors import UserError
from universal_transformer.files import read_json, show, show_path, write_json
from universal_transformer.tasks.sides import SIDES
from universal_transformer.tasks.sides.side import Side
from universal_transformer.typed import check_names, hints, listed, typed

CODEC_FILE = "codec.json"
Source = TypeVar("Source", bound=Side)
Target = TypeVar("Target", bound=Side)
Both = TypeVar("Both", bound=Side)


@dataclass(frozen=True)
class Codec(Generic[Source, Target]):
    """Both sides; one object for both if they share their ids. A run saves it with its weights, so that it can predict
    on raw input.
    """

    source: Source
    target: Target

    @classmethod
    def shared(cls, side: Both) -> Codec[Both, Both]:
        return Codec(side, side)

    @property
    def model_fields(self) -> Mapping[str, Any]:
        """Fields of a model's configuration that follow from both sides, by path: ``{"vocabulary.size": 40}``."""
        none = dict.fromkeys(("vocabulary.size", "vocabulary.target_size", "vocabulary.num_classes"))
        fields = {**none, **self.target.target_fields, **self.source.source_fields}
        return fields | ({"vocabulary.target_size": None} if self.source is self.target else {})

    @property
    def padding_id(self) -> int:
        return int(self.model_fields.get("vocabulary.padding_id", PADDING))

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        """The tokens of "source" and "target" and the names of "classes" by id, so that a run that starts from another
        one takes over the rows of those that both know; no entry for a side whose ids are none.
        """
        role = "classes" if self.target.names_classes else "target"
        sides = {"source": self.source.tokens, role: self.target.tokens}
        return {name: tokens for name, tokens in sides.items() if tokens}

    @property
    def vocabulary(self) -> str:
        """Numbers of tokens, in words; empty for a codec that shows no pieces of text."""
        source, target = self.source.size, self.target.size
        if self.source is self.target:
            return f"{source}{' for both sides' * (bool(source) and not self.target.continues)}"
        if not source or not target:
            return ""
        return f"source {source}, target {target}" if self.source.kind == self.target.kind else f"{source}, {target}"

    @property
    def unanswered(self) -> int | tuple[int, ...]:
        """The target of an example without an answer."""
        return NO_CLASS if self.model_fields["architecture"] == "classifier" else ()

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Turn numbered lines of raw input (of the file `name`) into examples without answers."""
        padding_id, unanswered = self.padding_id, self.unanswered
        for example in self.source.read(lines, name=name):
            target = example.target if isinstance(unanswered, tuple) else unanswered
            yield replace(example, target=target, padding_id=padding_id)

    def render(self, target: Any) -> str:
        """Turn a class or target ids into text."""
        return self.target.render(ids_of(target))

    def words(self, example: Example) -> list[str]:
        return self.source.names(example.target if self.target.continues else example.source)

    def pieces(self, example: Example) -> tuple[list[str], list[str]]:
        """The tokens of source and target with their blanks visible."""
        source = [] if self.target.continues else self.source.pieces(example.source)
        return source, self.target.pieces(example.target)

    def save(self, folder: Path) -> None:
        """Write the tokenizers, then ``codec.json``, each whole or not at all."""
        written: dict[str, Any] = {"target": None}
        for role, side in self._sides().items():
            written[role] = {"kind": side.kind}
            kind: Any = type(side)
            for name in hints(kind):
                value = getattr(side, name)
                if isinstance(value, Tokenizer):
                    value.save(folder / f"{_file(role, name)}.json")
                else:
                    written[role][name] = value
        write_json(folder / CODEC_FILE, written)

    def _sides(self) -> dict[str, Side]:
        return {"source": self.source} | ({} if self.source is self.target else {"target": self.target})

    @classmethod
    def load(cls, folder: Path) -> Codec[Any, Any]:
        """Read what `save` wrote. UserError names the file, the field, and what is expected."""
        path = folder / CODEC_FILE
        where = show_path(path)
        if not path.is_file():
            raise UserError(f"{where}: no such file; a run's codec is written when its training starts")
        content = read_json(path)
        check_names(content, expected={"source", "target"}, where=where)
        source = _load(content["source"], folder, "source", where)
        return Codec(source, source if content["target"] is None else _load(content["target"], folder, "target", where))


def _file(role: str, name: str) -> str:
    return name if role == "source" else f"target_{name}"


def _load(content: Any, folder: Path, role: str, where: str) -> Side:
    kind = content.get("kind") if isinstance(content, dict) else content
    if not isinstance(kind, str) or not isinstance(content, dict) or kind not in SIDES:
        raise UserError(f"{where}: {role}: unknown kind {show(kind)}; known are {listed(SIDES)}")
    kind_of_side: Any = SIDES[kind]
    fields = hints(kind_of_side)
    tokenizers = {name for name, hint in fields.items() if hint is Tokenizer}
    check_names(content, expected=(fields.keys() - tokenizers) | {"kind"}, where=where, field=role)
    values = {
        name: typed(content[name], hint, where=where, field=f"{role}.{name}")
        for name, hint in fields.items()
        if name not in tokenizers
    }
    values |= {name: saved_tokenizer(folder, _file(role, name)) for name in sorted(tokenizers)}
    try:
        side: Side = kind_of_side(**values)
    except UserError as error:
        raise UserError(f"{where}: {role}: {error}") from error
    return side
