"""A story with its question: one position, a tuple of word ids, for each fact and for the question."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.data.story_lines import Question, parse, words, written_words
from universal_transformer.data.tokenizer import SPECIAL
from universal_transformer.errors import UserError
from universal_transformer.files import show
from universal_transformer.tasks.sides.listed import Listed

UNKNOWN_WORD = 1


@dataclass(frozen=True, kw_only=True)
class Facts(Listed):
    """Ids: 0 padding, 1 a word not in `vocabulary`, then the words. The oldest fact is first, or with `recent_first`
    the latest; the question is always last. Only the latest `max_facts` facts are kept (0 = all).
    """

    kind: ClassVar[str] = "facts"
    several_lines: ClassVar[bool] = True
    special: ClassVar[Sequence[str]] = (SPECIAL[0], SPECIAL[-1])
    vocabulary: tuple[str, ...]
    max_fact_words: int
    max_facts: int = 0
    recent_first: bool = False

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {**super().source_fields, "inputs.kind": "facts", "vocabulary.max_fact_words": self.max_fact_words}

    @property
    def listed(self) -> Sequence[str]:
        return self.vocabulary

    def encode(self, question: Question) -> Example:
        """Turn a question into an example without an answer.

        Raises UserError for a fact of more than `max_fact_words` words.
        """
        first = max(0, len(question.facts) - self.max_facts) if self.max_facts else 0
        facts = [self._ids_of(fact, where=question.where) for fact in question.facts[first:]]
        supports = [index - first for index in question.supports if index >= first]
        if self.recent_first:
            facts.reverse()
            supports = [len(facts) - 1 - index for index in supports]
        facts.append(self._ids_of(question.text, where=question.where))
        return Example(source=tuple(facts), target=(), supports=tuple(supports))

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example for each question of a file in the bAbI format."""
        for question in parse(lines, name=name, answers=False):
            example = self.encode(question)
            parts = (word for text in (*question.facts, question.text) for word in written_words(text))
            unknown = dict.fromkeys(word for word in parts if word.lower() not in self.ids)
            yield Example(source=example.source, target=(), supports=example.supports, unknown=tuple(unknown))

    def names(self, positions: Sequence[tuple[int, ...]]) -> list[str]:
        return [" ".join(map(self.name, fact)) for fact in positions]

    @property
    def view(self) -> Mapping[str, Any]:
        return {"form": "facts"}

    def input_text(self, source: Sequence[tuple[int, ...]]) -> str:
        """The numbered lines of a story, with the mark of its question."""
        names = self.names(source)
        lines = [f"{number} {names[row]}" for number, row in enumerate(self.reading_order(len(names)), start=1)]
        return "\n".join(lines) + "?"

    def reading_order(self, count: int) -> Sequence[int]:
        return (*range(count - 2, -1, -1), count - 1) if self.recent_first else range(count)

    def _ids_of(self, text: str, *, where: str) -> tuple[int, ...]:
        if text not in self._seen:
            ids = tuple(self.ids.get(word, UNKNOWN_WORD) for word in words(text))
            if len(ids) > self.max_fact_words:
                raise UserError(
                    f"{where}: {show(text)} has {len(ids)} words; "
                    f"a fact has at most {self.max_fact_words}, as in the training data, and a line of its own"
                )
            self._seen[text] = ids
        return self._seen[text]

    @cached_property
    def _seen(self) -> dict[str, tuple[int, ...]]:
        return {}
