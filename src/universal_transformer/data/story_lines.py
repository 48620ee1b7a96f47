"""The bAbI line format of stories and questions.

A file has stories of numbered lines, ``ID statement`` or ``ID question<TAB>answer<TAB>supporting IDs``. The ID 1 begins
a new story. The facts of a question are all earlier statements of its story.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path

MAX_DIGITS = 9
"""Most digits of an ID: Python refuses to read a number of thousands of digits."""
_FORMAT = "expected 'ID statement' or 'ID question<TAB>answer<TAB>supporting IDs', such as '1 Mary went home.'"


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
