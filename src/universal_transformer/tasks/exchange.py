"""Further forms of bAbI questions: the names of persons, places and objects exchanged within a class.

A story stays right when two names of the same class change places everywhere in it, in its question and in its answer.
Classes are those of a task, because a name may have a part of its own in another (in task 20 the hungry go to the
kitchen). This is ours; the paper trains on the published stories alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from universal_transformer.data.example import Example, ids_of
from universal_transformer.tasks.facts import FactCodec
from universal_transformer.tasks.lazy import LazyExamples

_MEN, _WOMEN = ("daniel", "john"), ("mary", "sandra")
_ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_TOWN = ("bedroom", "cinema", "kitchen", "office", "park", "school")
_OBJECTS = ("apple", "football", "milk")
_BASIC = ((*_MEN, *_WOMEN), _ROOMS)
_GENDERS = (_MEN, _WOMEN, _ROOMS)
_CARRIED = (*_BASIC, _OBJECTS)

CLASSES: dict[int, tuple[tuple[str, ...], ...]] = {
    1: _BASIC,
    2: _CARRIED,
    3: _CARRIED,
    4: (_ROOMS,),
    5: (("bill", "fred", "jeff", "mary"), _ROOMS, _OBJECTS),
    6: _CARRIED,
    7: _CARRIED,
    8: _CARRIED,
    9: _BASIC,
    10: (("bill", "fred", "julie", "mary"), _TOWN),
    11: _GENDERS,  # "he" and "she" name persons there
    12: _BASIC,
    13: _GENDERS,
    14: (("bill", "fred", "julie", "mary"), _TOWN),
    15: (("emily", "gertrude", "jessica", "winona"),),
    16: (
        ("bernhard", "brian", "greg", "julius", "lily"),
        ("gray", "green", "white", "yellow"),
        ("frog", "lion", "rhino", "swan"),
    ),
    19: (_ROOMS,),
    20: (("antoine", "jason", "sumit", "yann"),),
}
"""Task -> classes of names that play the same part; tasks 17 and 18 have none."""


class ExchangedExamples(LazyExamples):
    """The given training examples, and after them `forms` further forms of each, drawn by the seed and the index."""

    def __init__(self, examples: Mapping[int, Sequence[Example]], *, codec: FactCodec, forms: int) -> None:
        self._codec = codec
        self._given = [(example, number) for number, given in examples.items() for example in given]
        # words of facts are in lower case, answers as they are spelled ("Fred" in task 5)
        self._answers = {answer.lower(): index for index, answer in enumerate(codec.target.labels)}
        super().__init__(self._form, count=len(self._given) * (1 + forms))

    def _form(self, index: int) -> Example:
        turn, place = divmod(index, len(self._given))
        example, task = self._given[place]
        return self._exchanged(example, task=task, draw=Random(f"exchange {index}")) if turn else example

    def _exchanged(self, example: Example, *, task: int, draw: Random) -> Example:
        """Return a form of `example`; the example itself if the answer of the form is not a known one."""
        ids, (label,) = self._codec.source.ids, ids_of(example.target)
        names: dict[str, str] = {}
        for known in ([name for name in names if name in ids] for names in CLASSES.get(task, ())):
            names |= dict(zip(known, draw.sample(known, len(known)), strict=True))
        words = self._codec.target.labels[label].lower().split(",")
        answer = ",".join(names.get(word, word) for word in words)
        if answer not in self._answers:
            return example
        other = {ids[name]: ids[new] for name, new in names.items()}
        source: Any = example.source
        facts = tuple([tuple([other.get(word, word) for word in fact]) for fact in source])
        return replace(example, source=facts, target=self._answers[answer])
