"""The bAbI line format and its codec: words to ids, and one position for each fact of a story.

A file has stories of numbered lines, ``ID statement`` or ``ID question<TAB>answer<TAB>supporting IDs``. The ID 1 begins
a new story. The facts of a question are all earlier statements of its story.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from universal_transformer.data.example import NO_CLASS, PADDING, Example
from universal_transformer.data.tokenizer import SPECIAL
from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path
from universal_transformer.tasks.codecs import SavedCodec

UNKNOWN_WORD = 1
FIRST_WORD = 2
MAX_DIGITS = 9
"""Most digits of an ID: Python refuses to read a number of thousands of digits."""
_FORMAT = "expected 'ID statement' or 'ID question<TAB>answer<TAB>supporting IDs'"


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the story up to it."""

    where: str
    """File and line, for messages."""
    story: int
    """Number of its story in the file, from 0."""
    facts: tuple[str, ...]
    """The statements before it, oldest first."""
    text: str
    answer: str | None
    supports: tuple[int, ...]
    """Indices into `facts`, in the order of the file."""


def parse(lines: Iterable[tuple[int, str]], *, name: str, answers: bool = True) -> Iterator[Question]:
    """Yield the questions of a file in the bAbI format, given as numbered lines.

    Without `answers`, as for prediction, a line that ends with "?" is a question, and its answer and
    supporting IDs may be left out. Empty lines are skipped. Raises UserError, naming file and line, for a
    wrong number of columns, an ID out of order, a supporting ID that names no earlier statement, and a
    missing answer.
    """
    name = show_path(name)
    facts: list[str] = []
    statement_ids: dict[int, int] = {}  # line ID -> index into facts
    previous, story, found = 0, -1, False
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{name}:{number}"
        identifier, columns = _split(line, where=where)
        if identifier == 1:
            facts, statement_ids, story = [], {}, story + 1
        elif identifier != previous + 1:
            allowed = f"1 or {previous + 1}" if previous else "1"
            raise UserError(f"{where}: expected ID {allowed}, found {identifier}")
        previous = identifier
        if len(columns) == 1 and not columns[0].endswith("?"):
            statement_ids[identifier] = len(facts)
            facts.append(columns[0])
            continue
        if answers:
            _check_answer(columns, where=where)
        found = True
        yield Question(
            where=where,
            story=story,
            facts=tuple(facts),
            text=columns[0],
            answer=",".join(map(str.strip, columns[1].split(","))) if columns[1:] and columns[1] else None,
            supports=_supports(columns[2] if len(columns) == 3 else "", statement_ids, where=where),
        )
    if not found:
        raise UserError(f"{name}: no question in the file; {_FORMAT}")


def _split(line: str, *, where: str) -> tuple[int, list[str]]:
    identifier, _, rest = line.lstrip().partition(" ")
    columns = [column.strip() for column in rest.split("\t")]
    if not (identifier.isascii() and identifier.isdecimal() and columns[0]):
        raise UserError(f"{where}: {_FORMAT}, found {show(line)}")
    if len(identifier) > MAX_DIGITS:
        raise UserError(f"{where}: ID {show(identifier)} has {len(identifier)} digits; at most {MAX_DIGITS}")
    if len(columns) > 3:
        raise UserError(f"{where}: {_FORMAT}, found {len(columns)} columns")
    if not words(columns[0]):
        raise UserError(f"{where}: expected words after the ID, found {show(columns[0])}")
    return int(identifier), columns


def _check_answer(columns: list[str], *, where: str) -> None:
    if len(columns) == 1 or not columns[1]:
        raise UserError(f"{where}: question without an answer; {_FORMAT}")
    if len(columns) != 3:
        raise UserError(f"{where}: question without supporting IDs; {_FORMAT}")


def _supports(column: str, statement_ids: dict[int, int], *, where: str) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for identifier in column.split():
        number = identifier.isascii() and identifier.isdecimal() and len(identifier) <= MAX_DIGITS
        index = statement_ids.get(int(identifier)) if number else None
        if index is None:
            raise UserError(f"{where}: supporting ID {show(identifier)} names no earlier statement of its story")
        found[index] = None
    return tuple(found)


def words(text: str) -> list[str]:
    return [word.lower() for word in written_words(text)]


def written_words(text: str) -> list[str]:
    """Return the words of a text as they are written, without marks."""
    return [word for word in (part.strip(".,?!") for part in text.split()) if word]


@dataclass(frozen=True, kw_only=True)
class FactCodec(SavedCodec):
    """A story with its question to one tuple of word ids for each fact, an answer to a class, and back.

    Ids: 0 padding, 1 a word not in `vocabulary`, then the words. The oldest fact is first, or with `recent_first` the
    latest; the question is always last. Only the latest `max_facts` facts are kept (0 = all).
    """

    kind: ClassVar[str] = "facts"
    several_lines: ClassVar[Literal[True]] = True
    vocabulary: tuple[str, ...]
    answers: tuple[str, ...]
    max_fact_words: int
    max_facts: int = 0
    recent_first: bool = False

    @classmethod
    def of(cls, questions: Sequence[Question], *, max_facts: int = 0, recent_first: bool = False) -> FactCodec:
        """Return the codec whose vocabulary, answers and longest fact are those of `questions`."""
        texts = {text for question in questions for text in (*question.facts, question.text)}
        split = [words(text) for text in texts]
        return cls(
            vocabulary=tuple(sorted({word for text in split for word in text})),
            answers=tuple(sorted({question.answer for question in questions if question.answer is not None})),
            max_fact_words=max(map(len, split)),
            max_facts=max_facts,
            recent_first=recent_first,
        )

    @property
    def model_fields(self) -> dict[str, Any]:
        return {
            "architecture": "classifier",
            "inputs.kind": "facts",
            "vocabulary.size": FIRST_WORD + len(self.vocabulary),
            "vocabulary.num_classes": len(self.answers),
            "vocabulary.max_fact_words": self.max_fact_words,
        }

    def encode(self, question: Question, *, group: str = "") -> Example:
        """Turn a question into an example; an answer that is no class becomes `NO_CLASS`.

        Raises UserError for a fact of more than `max_fact_words` words.
        """
        first = max(0, len(question.facts) - self.max_facts) if self.max_facts else 0
        facts = [self._ids_of(fact, where=question.where) for fact in question.facts[first:]]
        supports = [index - first for index in question.supports if index >= first]
        if self.recent_first:
            facts.reverse()
            supports = [len(facts) - 1 - index for index in supports]
        facts.append(self._ids_of(question.text, where=question.where))
        target = NO_CLASS if question.answer is None else self._classes.get(question.answer, NO_CLASS)
        return Example(source=tuple(facts), target=target, group=group, supports=tuple(supports))

    @property
    def tokens_by_side(self) -> Mapping[str, Sequence[str]]:
        return {"source": [SPECIAL[0], SPECIAL[-1], *self.vocabulary], "classes": self.answers}

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example for each question of a file in the bAbI format, without its answer."""
        for question in parse(lines, name=name, answers=False):
            example = self.encode(question)
            parts = (word for text in (*question.facts, question.text) for word in written_words(text))
            unknown = dict.fromkeys(word for word in parts if word.lower() not in self._ids)
            yield replace(example, target=NO_CLASS, unknown=tuple(unknown))

    def render(self, target: int | Sequence[int]) -> str:
        assert isinstance(target, int), "the target of a question is one class"
        return "<unknown>" if target == NO_CLASS else self.answers[target]

    def words(self, example: Example) -> list[str]:
        return [" ".join(map(self._word, fact)) for fact in example.source if isinstance(fact, tuple)]

    def _ids_of(self, text: str, *, where: str) -> tuple[int, ...]:
        if text not in self._seen:
            ids = tuple(self._ids.get(word, UNKNOWN_WORD) for word in words(text))
            if len(ids) > self.max_fact_words:
                raise UserError(
                    f"{where}: {show(text)} has {len(ids)} words; "
                    f"a fact has at most {self.max_fact_words}, as in the training data, and a line of its own"
                )
            self._seen[text] = ids
        return self._seen[text]

    def _word(self, identifier: int) -> str:
        if identifier in (PADDING, UNKNOWN_WORD):
            return "" if identifier == PADDING else "<unknown>"
        return self.vocabulary[identifier - FIRST_WORD]

    @property
    def ids(self) -> Mapping[str, int]:
        """Return the id of each word."""
        return self._ids

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: FIRST_WORD + index for index, word in enumerate(self.vocabulary)}

    @cached_property
    def _classes(self) -> dict[str, int]:
        return {answer: index for index, answer in enumerate(self.answers)}

    @cached_property
    def _seen(self) -> dict[str, tuple[int, ...]]:
        return {}
