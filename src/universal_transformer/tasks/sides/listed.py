"""Sides whose ids have names: classes, tags, words out of lists, characters, and brackets of trees."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from universal_transformer.data.example import ABSENT, NO_CLASS, PRESENT, Example, ids_of
from universal_transformer.data.tokenizer import BLANK, END, SPECIAL, UNKNOWN, Tokenizer, until_end
from universal_transformer.data.trees import CLOSE, OPEN, WORD, answer_tree, joined, treebank_word
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import show
from universal_transformer.tasks.sides.side import Side, unknown_name
from universal_transformer.typed import listed

FIRST_SYMBOL = len(SPECIAL)


@dataclass(frozen=True)
class Listed(Side):
    """Base of sides with a list of names. Their ids follow those of `special`."""

    special: ClassVar[Sequence[str]] = SPECIAL
    nameless: ClassVar[str] = SPECIAL[UNKNOWN]
    """Written for an id without a name; only an untrained model gives it."""

    @property
    def listed(self) -> Sequence[str]:
        """The names in the order of their ids."""
        raise NotImplementedError

    @property
    def tokens(self) -> Sequence[str]:
        return [*self.special, *self.listed]

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": len(self.tokens)}

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "encoder_decoder", "vocabulary.target_size": len(self.tokens)}

    @cached_property
    def ids(self) -> Mapping[str, int]:
        return {name: index for index, name in enumerate(self.listed, start=len(self.special))}

    def name(self, index: int) -> str:
        place = index - len(self.special)
        return self.listed[place] if 0 <= place < len(self.listed) else self.nameless

    def names(self, positions: Any) -> list[str]:
        return list(map(self.name, positions))

    def actions(self, target: Any) -> list[int]:
        places = [index - len(self.special) for index in ids_of(target)]
        return [place for place in places if 0 <= place < len(self.listed)] or [0]


@dataclass(frozen=True)
class Classes(Listed):
    """The names of the classes, from 0 on; `NO_CLASS` is an answer that is none of them."""

    kind: ClassVar[str] = "classes"
    names_classes: ClassVar[bool] = True
    special: ClassVar[Sequence[str]] = ()
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.labels)) < len(self.labels):
            raise UserError(f"labels: found {show(self.labels)}; expected different strings")

    @property
    def listed(self) -> Sequence[str]:
        return self.labels

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "classifier", "vocabulary.num_classes": len(self.labels)}

    @property
    def size(self) -> str:
        return f"{len(self.labels):,} labels"

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[int]:
        for text, place in zip(texts, places, strict=True):
            if text.strip() not in self.ids:
                raise UserError(f"{place}: {unknown_name(text.strip(), self.labels, what='label')}")
        return [self.ids[text.strip()] for text in texts]

    def pieces(self, ids: int) -> list[str]:
        return [] if ids == NO_CLASS else [self.labels[ids]]

    def render(self, target: Sequence[int]) -> str:
        return BLANK.join(self.names(target))


@dataclass(frozen=True)
class Labels(Classes):
    """The names of labels of which a text may have several. A target has `ABSENT` or `PRESENT` for each label."""

    kind: ClassVar[str] = "labels"
    separator: str
    """What stands between labels; alone it stands for none."""

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {**super().target_fields, "outputs.kind": "labels"}

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:  # type: ignore[override]
        found = []
        for text, place in zip(texts, places, strict=True):
            named = {*split_labels(text, self.separator)}
            if unknown := sorted(named - self.ids.keys()):
                raise UserError(f"{place}: {unknown_name(unknown[0], self.labels, what='label')}")
            found.append(tuple(PRESENT if label in named else ABSENT for label in self.labels))
        return found

    def pieces(self, ids: Sequence[int]) -> list[str]:  # type: ignore[override]
        return [label for label, given in zip(self.labels, ids, strict=True) if given == PRESENT]

    def render(self, target: Sequence[int]) -> str:
        """The labels that a text has, as in a file."""
        return self.separator.join(self.pieces(target)) or self.separator


def split_labels(text: str, separator: str) -> list[str]:
    """The labels in a column, of which there may be none."""
    return [label for part in text.split(separator) if (label := part.strip())]


@dataclass(frozen=True)
class Tags(Listed):
    """The tags in the order of their classes, from 1 on: one for each position of the source."""

    kind: ClassVar[str] = "tags"
    names_classes: ClassVar[bool] = True
    nameless: ClassVar[str] = "_"
    special: ClassVar[Sequence[str]] = (nameless,)
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if list(self.tags) != sorted(set(self.tags)):
            raise UserError(f"tags: found {show(self.tags)}; expected different strings, sorted")

    @property
    def listed(self) -> Sequence[str]:
        return self.tags

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "tagger", "vocabulary.num_classes": len(self.tokens)}

    @property
    def size(self) -> str:
        return f"{len(self.tags):,} tags"

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        for text, place in zip(texts, places, strict=True):
            if unknown := [tag for tag in text.split(BLANK) if tag not in self.ids]:
                within = " in the sentence from this line on"
                raise UserError(f"{place}: {unknown_name(unknown[0], self.tags, what='tag', within=within)}")
        return [tuple(self.ids[tag] for tag in text.split(BLANK)) for text in texts]

    def render(self, target: Sequence[int]) -> str:
        """The tags with blanks between them."""
        return BLANK.join(self.names(target))


@dataclass(frozen=True)
class Names(Listed):
    """Ids: 0 padding, 1 start, 2 end, then the names of all lists in order. A source has one name of each list."""

    kind: ClassVar[str] = "names"
    special: ClassVar[Sequence[str]] = SPECIAL[: END + 1]
    nameless: ClassVar[str] = SPECIAL[END]
    lists: tuple[tuple[str, ...], ...]

    @cached_property
    def listed(self) -> Sequence[str]:
        return [name for names in self.lists for name in names]

    def encode(self, *names: str) -> tuple[int, ...]:
        return (*[self.ids[name] for name in names], END)

    def read_line(self, line: str, *, where: str) -> Example:
        """A line has names with blanks between them."""
        words = line.lower().split()
        if len(words) != len(self.lists) or any(
            word not in names for word, names in zip(words, self.lists, strict=True)
        ):
            unknown = next((word for word in words if word not in self.ids), "")
            needed = " and ".join(f"one of {listed(names)}" for names in self.lists)
            such = f"such as {BLANK.join(names[-1] for names in self.lists)}"
            guess = suggestion(unknown, self.listed)
            raise UserError(f"{where}: {show(line.strip())}: expected {needed}, {such}{guess}")
        return Example(source=self.encode(*words), target=())

    def input_text(self, source: Sequence[int]) -> str:
        return self.render(source)

    def render(self, target: Sequence[int]) -> str:
        """The names of ids with blanks between them; what is no name is left out."""
        return BLANK.join(self.names([index for index in target if index > END]))


@dataclass(frozen=True, kw_only=True)
class Symbols(Listed):
    """Characters to ids and back: 0 padding, 1 start, 2 end, 3 unknown, then `symbols`."""

    kind: ClassVar[str] = "symbols"
    nameless: ClassVar[str] = "\N{REPLACEMENT CHARACTER}"
    symbols: str
    operator: str = ""
    """If it is not empty: the ids of the numbers on both sides of it, and of an answer, begin with the last digit."""

    @property
    def in_order(self) -> bool:  # type: ignore[override]
        return not self.operator

    @property
    def listed(self) -> Sequence[str]:
        return self.symbols

    @property
    def exchanged(self) -> tuple[Tokenizer, str] | None:
        return None if self.operator else (Tokenizer.of_characters(self.symbols), "$A")

    def encode(self, text: str, *, where: str = "") -> tuple[int, ...]:
        if unknown := [character for character in text if character not in self.ids]:
            place = f"{where}: " if where else ""
            raise UserError(f"{place}expected symbols out of {self.symbols!r}, found {show(unknown[0])}")
        return tuple(self.ids[character] for character in self._reverse_numbers(text))

    def example(self, source: str, target: str, *, group: str = "") -> Example:
        """The example of a source and its target, with the end id after the target."""
        return Example(source=self.encode(source), target=(*self.encode(target), END), group=group)

    def read_line(self, line: str, *, where: str) -> Example:
        """A line has symbols, and blanks that are ignored where they are none."""
        text = line.strip() if BLANK in self.symbols else "".join(line.split())
        source = self.encode(text, where=where)
        if self.operator and not re.fullmatch(f"[^{self.operator}]+[{self.operator}][^{self.operator}]+", text):
            one, other = (self.symbols.replace(self.operator, "")[place] for place in (1, -1))
            raise UserError(
                f"{where}: found {show(text)}; expected two numbers with {self.operator} between them, such as "
                f"{one}{self.operator}{other}"
            )
        return Example(source=source, target=())

    def input_text(self, source: Sequence[int]) -> str:
        return self._reverse_numbers("".join(self.names(source)))

    def render(self, target: Sequence[int]) -> str:
        """Turn ids up to the end id into text; ids without a symbol become "�"."""
        return self._reverse_numbers("".join(self.names(until_end(target))))

    def _reverse_numbers(self, text: str) -> str:
        """`text` with its numbers reversed, if the side does that; twice is `text` again."""
        return self.operator.join(number[::-1] for number in text.split(self.operator)) if self.operator else text


@dataclass(frozen=True)
class Brackets(Listed):
    """The tree of a sentence: ``XX`` for each word, an opening bracket of each label, then a closing bracket of each.

    An answer ends with the end id.
    """

    kind: ClassVar[str] = "tree"
    labels: tuple[str, ...]
    """The labels in the order of their ids."""
    max_length: int
    """Most tokens of a tree, ``<end>`` included."""

    def __post_init__(self) -> None:
        if list(self.labels) != sorted(set(self.labels)):
            raise UserError(f"labels: found {show(self.labels)}; expected different strings, sorted")

    @cached_property
    def listed(self) -> Sequence[str]:
        return [WORD, *(f"{bracket}{label}" for bracket in (OPEN, CLOSE) for label in self.labels)]

    @property
    def size(self) -> str:
        return f"{len(self.labels):,} labels"

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        """The ids of the tokens of trees, which have blanks between them."""
        encoded = []
        for text, place in zip(texts, places, strict=True):
            tokens = text.split(BLANK)
            if unknown := sorted({token[1:] for token in tokens if token not in self.ids}):
                raise UserError(f"{place}: {unknown_name(unknown[0], self.labels, what='label')}")
            encoded.append((*(self.ids[token] for token in tokens), END))
        return encoded

    def fits(self, encoded: Sequence[int]) -> bool:
        return len(encoded) <= self.max_length

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.names(until_end(ids))

    def render(self, target: Sequence[int]) -> str:
        """The tree as text, with ``XX`` for each word; it may be no valid tree."""
        return joined(self.pieces(target))

    def completed(self, text: str, line: str) -> str:
        """A tree with the words of its sentence, `line`, in their places; another text as it is."""
        tree = answer_tree(text, words=[*map(treebank_word, line.split())])
        return text if tree is None else str(tree)
