"""Text with a tokenizer: the input or the answer of a model, or (`RunningText`) both in one sequence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from universal_transformer.data.columns import BETWEEN
from universal_transformer.data.example import PADDING, Example
from universal_transformer.data.tokenizer import BLANK, END, SPECIAL, Tokenizer
from universal_transformer.data.trees import CLOSE, OPEN, treebank_word
from universal_transformer.errors import UserError
from universal_transformer.files import one_line, show
from universal_transformer.tasks.sides.side import Side, answer_notes, too_long
from universal_transformer.typed import AtLeastTwo


@dataclass(frozen=True)
class Tokenized(Side):
    """Base of sides whose ids are those of a tokenizer."""

    tokenizer: Tokenizer

    @property
    def _sizes(self) -> dict[str, int]:
        """Fields of a configuration: how many ids there are, and which of them are no text."""
        tokenizer = self.tokenizer
        special = {"padding_id": tokenizer.padding_id, "start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        return {"vocabulary.size": len(tokenizer)} | {f"vocabulary.{name}": index for name, index in special.items()}

    @property
    def tokens(self) -> Sequence[str]:
        return self.tokenizer.tokens()

    @property
    def size(self) -> str:
        return f"{len(self.tokenizer):,} tokens"

    @property
    def unknown_id(self) -> int:
        return self.tokenizer.unknown_id

    def names(self, positions: Sequence[int]) -> list[str]:
        return [self.tokenizer.label(index) for index in positions]

    def input_text(self, source: Sequence[int]) -> str:
        return one_line(self.tokenizer.decode(source))

    def spans(self, text: str) -> list[tuple[int, int]]:
        return self.tokenizer.spans(text)


@dataclass(frozen=True)
class Text(Tokenized):
    """One or two texts, each with ``<end>`` after it."""

    kind: ClassVar[str] = "text"
    max_length: int
    """Most tokens, each ``<end>`` included."""
    segments: int = 1
    """Texts of a source: 1, or 2 with a tab between them in a line."""
    after: int = 0
    """0: ids are those of the tokenizer. 3: they come after padding, start and end, which are 0 to 2 as in targets of
    other kinds.
    """

    def __post_init__(self) -> None:
        if self.segments not in (1, 2):
            raise UserError(f"segments: found {self.segments}; expected 1 or 2")
        if self.after not in (0, END + 1):
            raise UserError(f"after: found {self.after}; expected 0 or {END + 1}")

    @property
    def exchanged(self) -> tuple[Tokenizer, str] | None:
        return None if self.after or self.segments > 1 else (self.tokenizer, "$A <end>")

    @property
    def source_fields(self) -> Mapping[str, Any]:
        sizes = {"vocabulary.size": self.after + len(self.tokenizer)} if self.after else self._sizes
        return {"inputs.kind": "tokens", **sizes} | ({"inputs.segments": self.segments} if self.segments > 1 else {})

    @property
    def target_fields(self) -> Mapping[str, Any]:
        sizes = self._sizes
        return {"architecture": "encoder_decoder", "vocabulary.target_size": sizes.pop("vocabulary.size"), **sizes}

    @property
    def tokens(self) -> Sequence[str]:
        return [*SPECIAL[: self.after], *self.tokenizer.tokens()]

    @property
    def unknown_id(self) -> int:
        return self.after + self.tokenizer.unknown_id

    def read_line(self, line: str, *, where: str) -> Example:
        """Two texts have a tab between them."""
        texts = line.split("\t") if self.segments > 1 else [line]
        if len(texts) != self.segments:
            found = f"{len(texts)} column{'s' * (len(texts) > 1)} in {show(line)}"
            raise UserError(f"{where}: found {found}; expected 2 texts, text<TAB>text")
        (ids,) = self.encode_many([BETWEEN.join(texts)], [where])
        if not self.fits(ids):
            raise UserError(too_long(where, len(ids), what="text", limit=self.max_length))
        unknown = dict.fromkeys(part for text in texts for part in self.tokenizer.unknown(text))
        notes = answer_notes(line, where) if self.segments == 1 else ()
        return Example(source=ids, target=(), unknown=tuple(unknown), notes=notes)

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        del places  # any text has ids
        columns = [texts]
        if self.segments > 1:
            columns = [list(column) for column in zip(*(text.split(BETWEEN) for text in texts), strict=True)]
        encoded = [self.tokenizer.encode_many(column) for column in columns]
        return [tuple(index for ids in row for index in self._ids(ids)) for row in zip(*encoded, strict=True)]

    def _ids(self, tokens: Sequence[int]) -> Iterator[int]:
        yield from (self.after + token for token in tokens) if self.after else tokens
        yield self._end_id

    @property
    def _end_id(self) -> int:
        return END if self.after else self.tokenizer.end_id

    def _token(self, index: int) -> int:
        return self.tokenizer.end_id if index == self._end_id else index - self.after

    def fits(self, encoded: Sequence[int]) -> bool:
        return len(encoded) <= self.max_length

    def names(self, positions: Sequence[int]) -> list[str]:
        return [self.tokenizer.label(self._token(index)) for index in positions]

    def input_text(self, source: Sequence[int]) -> str:
        """One text, or two with a tab between them."""
        ends = [place for place, index in enumerate(source) if index == self._end_id]
        parts = zip([0, *(place + 1 for place in ends)], ends, strict=False)
        return "\t".join(self.tokenizer.decode(list(map(self._token, source[first:end]))) for first, end in parts)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.tokenizer.piece(self._token(index)) for index in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        found, place = [], 0
        for part in text.split("\t") if self.segments > 1 else [text]:
            end = place + len(part)
            found += [(place + first, place + last) for first, last in self.tokenizer.spans(part)]
            found.append((end, end))
            place = end + 1
        return found

    def render(self, target: Sequence[int]) -> str:
        """Turn ids into text on one line."""
        return one_line(self.tokenizer.decode(target))


@dataclass(frozen=True)
class Sentence(Tokenized):
    """The words of a sentence, as a tokenizer of the kind "whitespace" has them, or their parts."""

    kind: ClassVar[str] = "sentence"
    max_length: int
    """Most positions."""
    parts: bool = False
    """Whether positions are parts of words: characters or byte pairs. A blank is before each word."""
    treebank: bool = False
    """Whether words are written as in treebanks, with ``-LRB-`` and ``-RRB-`` for brackets."""

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", "vocabulary.size": len(self.tokenizer)}

    @property
    def size(self) -> str:
        return f"{len(self.tokenizer):,} {'tokens' if self.parts else 'words'}"

    @property
    def exchanged(self) -> tuple[Tokenizer, str] | None:
        return None if self.parts or self.treebank else (self.tokenizer, "$A")

    @cached_property
    def _beginnings(self) -> frozenset[int]:
        """The ids of parts that begin a word."""
        return frozenset(index for index in range(len(self.tokenizer)) if self.tokenizer.decode([index])[:1] == BLANK)

    def word_places(self, ids: Sequence[int]) -> Sequence[int]:
        if not self.parts:
            return range(len(ids))
        return [place for place, index in enumerate(ids) if index in self._beginnings]

    def at_words(self, source: Sequence[int], tags: Sequence[int]) -> tuple[int, ...]:
        """The tags of words at the first positions of these, and no class at the others."""
        at = dict(zip(self.word_places(source), tags, strict=True))
        return tuple(at.get(place, PADDING) for place in range(len(source)))

    def spans(self, text: str) -> list[tuple[int, int]]:
        if not self.parts:
            return super().spans(text)
        return [(max(0, first - 1), end - 1) for first, end in super().spans(BLANK + text)]

    def read_line(self, line: str, *, where: str) -> Example:
        """A line has words with blanks between them."""
        words = line.split()
        text = BLANK.join(map(treebank_word, words) if self.treebank else words)
        (ids,) = self.encode_many([text], [where])
        if not self.fits(ids):
            raise UserError(too_long(where, len(ids), what="sentence", limit=self.max_length))
        notes = _tree_notes(line, where) if self.treebank else answer_notes(line, where)
        return Example(source=ids, target=(), unknown=self.tokenizer.unknown(text), notes=notes)

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[tuple[int, ...]]:
        del places  # any text has ids
        return [tuple(ids) for ids in self.tokenizer.encode_many([BLANK * self.parts + text for text in texts])]

    def fits(self, encoded: Sequence[int]) -> bool:
        return len(encoded) <= self.max_length


def _tree_notes(line: str, where: str) -> tuple[str, ...]:
    """A note if a line to parse looks like a line of a treebank."""
    looks = line.lstrip().startswith(OPEN) and line.rstrip().endswith(CLOSE)
    return (f"{where}: brackets, which are read as words; a line is the words alone, without a tree",) * looks


@dataclass(frozen=True)
class RunningText(Tokenized):
    """The text of a language model: a line is a prompt, which the model continues."""

    kind: ClassVar[str] = "continuation"
    continues: ClassVar[bool] = True
    reads_empty_lines: ClassVar[bool] = True
    block_length: AtLeastTwo
    """Tokens of an example; a prompt has fewer."""

    @property
    def exchanged(self) -> tuple[Tokenizer, str] | None:
        return self.tokenizer, "<start> $A"

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "tokens", **self._sizes}

    @property
    def target_fields(self) -> Mapping[str, Any]:
        return {"architecture": "language_model"}

    @property
    def by_character(self) -> bool:  # type: ignore[override]
        return self.tokenizer.by_character

    def read_line(self, line: str, *, where: str) -> Example:
        """A line is a prompt, the `target`."""
        ids = tuple(self.tokenizer.encode(line))
        if len(ids) >= self.block_length:
            raise UserError(
                f"{where}: a prompt of {len(ids)} tokens; this run takes at most {self.block_length - 1} (below "
                "--data.block-length of its training)"
            )
        return Example(source=(), target=ids, unknown=self.tokenizer.unknown(line))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self.tokenizer.piece(index) for index in ids]

    def render(self, target: Sequence[int]) -> str:
        """Turn ids into text; an ``<end>`` between them becomes a line break."""
        end_id = self.tokenizer.end_id
        ids = target[:-1] if target and target[-1] == end_id else target
        ends = [place for place, index in enumerate(ids) if index == end_id]
        bounds = zip([0, *(place + 1 for place in ends)], [*ends, len(ids)], strict=True)
        return "\n".join(self.tokenizer.decode(ids[first:end]) for first, end in bounds)

    def shown(self, text: str, written: Sequence[int] | None, line: str) -> str:
        """The prompt with its continuation, several lines with an empty one after them."""
        prompt = self.tokenizer.encode(line)
        whole, before = self.render([*prompt, *(written or ())]), self.render(prompt)
        found = line + (whole.removeprefix(before) if whole.startswith(before) else text)
        return f"{found}\n" if "\n" in found else found
