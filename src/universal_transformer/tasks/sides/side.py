"""One side of a codec: what a model reads, or what it writes, as text and as ids or numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from universal_transformer.data.example import Example, Frames
from universal_transformer.data.picture_files import Pixels
from universal_transformer.data.tokenizer import Tokenizer
from universal_transformer.files import one_line, show, show_path


class Side:
    """The protocol of a side. A member is a frozen dataclass of JSON values and tokenizers, which `Codec` saves.

    A source has `source_fields`, `read_line` and `names`; a target has `target_fields` and `render`. A kind may be
    both. The other methods have an answer for sides that have no such thing. ``__post_init__`` may refuse values by a
    UserError.
    """

    kind: ClassVar[str]
    """Its name in `SIDES` and in a saved codec."""
    several_lines: ClassVar[bool] = False
    """Of a source: whether one input has several lines, so that a file is read as a whole, by a `read` of its own."""
    reads_empty_lines: ClassVar[bool] = False
    """Of a source: whether an empty line is an input; others leave it out."""
    segments: int = 1
    """Of a source: its texts, which have a tab between them in a line."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Of a source whose lines are paths of files: the endings of these files, in small letters."""
    suffix: ClassVar[str] = ""
    """Of a target whose answers are files: their ending."""
    continues: ClassVar[bool] = False
    """Of a target: whether an answer goes on where the input ends, as that of a language model does."""
    names_classes: ClassVar[bool] = False
    """Of a target: whether it has classes instead of tokens."""
    draws: ClassVar[bool] = False
    """Of a target: whether its answers are pictures, which are sampled."""
    in_order: bool = True
    """Of a target: whether the text of an answer begins with that of its first tokens."""
    by_character: bool = False
    """Whether a token is one character."""

    @property
    def source_fields(self) -> Mapping[str, Any]:
        """Fields of a model's configuration that follow from this source, by dotted path."""
        raise NotImplementedError

    @property
    def target_fields(self) -> Mapping[str, Any]:
        """Fields of a model's configuration that follow from this target, by dotted path."""
        raise NotImplementedError

    @property
    def tokens(self) -> Sequence[str]:
        """The tokens or classes by id, for a run that starts from another one; none if ids have no names."""
        return ()

    @property
    def size(self) -> str:
        """The number of tokens or classes in words; empty for a side that is no text."""
        return ""

    @property
    def unknown_id(self) -> int | None:
        """The id of all that is not in the vocabulary; in an answer it never counts as correct."""
        return None

    @property
    def exchanged(self) -> tuple[Tokenizer, str] | None:
        """A tokenizer with these ids, for other libraries, and what a source has around its text, such as "$A <end>" or
        "<start> $A"; None for a side whose ids need more than a tokenizer.
        """
        return None

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Turn numbered lines of input (of the file `name`) into examples without answers."""
        for number, line in lines:
            if self.reads_empty_lines or line.strip():
                yield self.read_line(line, where=f"{show_path(name)}:{number}")

    def read_line(self, line: str, *, where: str) -> Example:
        """Turn a line of input into an example without an answer; a UserError says `where` it is."""
        raise NotImplementedError

    def encode_many(self, texts: Sequence[str], places: Sequence[str]) -> list[Any]:
        """Turn columns of training rows into sources or targets; `places` say where each is, for messages."""
        raise NotImplementedError

    def fits(self, encoded: Any) -> bool:
        """Whether a source or target of `encode_many` is short enough."""
        del encoded
        return True

    def names(self, positions: Any) -> list[str]:
        """A label for each position of a source, for plots."""
        raise NotImplementedError

    def input_text(self, source: Any) -> str:
        """A source as `read` takes it, unknown words aside; empty where that is the path of a file."""
        return "" if self.suffixes else " ".join(self.names(source))

    def pieces(self, ids: Any) -> list[str]:
        """The tokens of a source, a class, or the tokens of a target, with their blanks visible."""
        return self.names(ids)

    def word_places(self, ids: Sequence[int]) -> Sequence[int]:
        """The positions of a source that have a class, of a model that gives one to each word."""
        return range(len(ids))

    def reading_order(self, count: int) -> Sequence[int]:
        """The `count` positions of a source in the order in which a person reads them."""
        return range(count)

    @property
    def view(self) -> Mapping[str, Any]:
        """The ``form`` in which a page shows a source, one of `draw.js`, and what that needs; JSON values."""
        return {"form": "tokens"}

    def picture(self, value: Any) -> Pixels | None:
        """Grey pixels [row, column] of a source, or of ids that were written, of a side that is a picture."""
        del value
        return None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The first character of each source position of the line `text`, and the one after its last, which is the
        same for an end; none for a side that does not know.
        """
        del text
        return []

    def render(self, target: Any) -> str:
        """Turn target ids, a class alone, into text."""
        raise NotImplementedError

    def content(self, target: Any) -> bytes:
        """The content of the file of an answer, ids or frames as a model writes them; empty if answers are text."""
        del target
        return b""

    def completed(self, text: str, line: str) -> str:
        """The text of an answer with the parts of the input line that it has places for."""
        del line
        return text

    def shown(self, text: str, written: Any, line: str) -> str:
        """The text of an answer, `written` by the model to the input line, as a person reads it."""
        del written, line
        return one_line(text)

    def fault(self, text: str) -> str:
        """What is wrong with an answer, whatever was asked; empty if nothing is seen to be."""
        del text
        return ""

    def observed(self, observations: Frames) -> Example:
        """The example of all observations [time, feature] of an episode up to now, of a source that has episodes."""
        raise NotImplementedError

    def actions(self, target: Any) -> list[int]:
        """The actions that a class or target ids name, of a target that has names; the first action where they name
        none.
        """
        raise NotImplementedError


Sides = tuple[type[Side], type[Side]]
"""Classes of source and target."""


def answer_notes(text: str, where: str) -> tuple[str, ...]:
    """A note if a line looks like one of a training file, whose answer would be read as text."""
    looks = "a tab" if "\t" in text else "a JSON object" if text.startswith("{") and text.endswith("}") else ""
    return (f"{where}: {looks}, which is read as text; a line is the text alone, without its answer",) if looks else ()


def too_long(where: str, length: int, *, what: str, limit: int) -> str:
    """The message for a text of too many tokens."""
    return f"{where}: a {what} of {length} tokens; this run takes at most {limit} (--data.max-length of its training)"


REMEDY = "; leave its example out, or train with an example of it"


def unknown_name(name: str, known: Sequence[str], *, what: str, within: str = "", remedy: str = REMEDY) -> str:
    """The message for a label or tag that the training file has not."""
    listed = f"{', '.join(map(show, known[:20]))}{', …' * (len(known) > 20)}"
    return f"unknown {what} {show(name)}{within}; those of the training file are {listed}{remedy}"
