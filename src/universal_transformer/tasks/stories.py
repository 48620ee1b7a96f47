"""The embedded default: a small simulator of people who move, pick things up and put them down.

Questions in the bAbI line format, and their supporting facts, the statements from which the answer follows:

====== =================================== ==========================================================
facts  question                            supporting facts
====== =================================== ==========================================================
1      Where is Clara?                     the latest move of Clara
2      Where is the lamp?                  the latest pick-up of the lamp and the latest move of who holds
                                           it; or its latest drop and the move before of who dropped it
3      Where was the lamp before the       the two moves of who carried it, to the place it was in before
       attic?                              and to the attic (the latest such time), and the pick-up
====== =================================== ==========================================================

The place of a person or thing is unknown before the first statement about it: people move first, and a thing is where
it is first picked up. A person never moves to the place where they are. A thing is picked up in the place where it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from random import Random
from typing import Annotated, ClassVar, Literal

from universal_transformer.data.example import Example
from universal_transformer.data.story_lines import parse
from universal_transformer.errors import UserError
from universal_transformer.tasks.facts import encode_question, fact_codec
from universal_transformer.tasks.sides.fact_list import Facts
from universal_transformer.tasks.sides.listed import Classes
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import Length, NumberOf, Positive, Range, check

PEOPLE = (
    *("Clara", "Boris", "Amina", "Hugo", "Ines", "Jonas"),
    *("Keiko", "Pablo", "Greta", "Farid", "Lucy", "Owen"),
)
PLACES = (
    *("attic", "garage", "library", "cellar", "balcony", "workshop"),
    *("pantry", "stable", "chapel", "studio", "orchard", "harbour"),
)
OBJECTS = (
    *("lamp", "hammer", "letter", "umbrella", "basket", "guitar"),
    *("kettle", "map", "coat", "candle", "violin", "rope"),
)
_MOVES = ("went to", "walked to", "headed to", "strolled to", "ran to")
_PICK_UPS = ("picked up", "took", "grabbed", "collected")
_DROPS = ("put down", "dropped", "left", "set down")
_TRIES = 5000
Split = Literal["train", "validation", "test"]
_Statements = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that can be asked now, with the indices of its supporting statements."""

    text: str
    answer: str
    supports: tuple[int, ...]


@dataclass
class _World:
    """The events so far; every time is the index of a statement."""

    statements: list[str] = field(default_factory=list)
    place: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Person -> (place, time of the move there)."""
    holder: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Thing held -> (person, time of the pick-up)."""
    lying: dict[str, tuple[str, tuple[int, int]]] = field(default_factory=dict)
    """Thing put down -> (place, times of its last holder's move there and of the drop)."""
    before: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = field(default_factory=dict)
    """Thing -> place it was carried to -> (place before that, supporting statements), of the latest time."""

    def move(self, person: str, place: str, *, verb: str) -> None:
        now = len(self.statements)
        self.statements.append(f"{person} {verb} the {place}.")
        if person in self.place:
            origin, arrived = self.place[person]
            for thing, (holder, taken) in self.holder.items():
                if holder == person:
                    supports = tuple(sorted((arrived, taken, now)))
                    self.before.setdefault(thing, {})[place] = (origin, supports)
        self.place[person] = (place, now)

    def pick_up(self, person: str, thing: str, *, verb: str) -> None:
        self.lying.pop(thing, None)
        self.holder[thing] = (person, len(self.statements))
        self.statements.append(f"{person} {verb} the {thing}.")

    def drop(self, thing: str, *, verb: str) -> None:
        person, _ = self.holder.pop(thing)
        place, arrived = self.place[person]
        self.lying[thing] = (place, (arrived, len(self.statements)))
        self.statements.append(f"{person} {verb} the {thing}.")

    def questions(self, num_facts: int) -> list[_Asked]:
        """Return every question that can be asked now and needs `num_facts` facts."""
        if num_facts == 1:
            return [_Asked(f"Where is {person}?", place, (arrived,)) for person, (place, arrived) in self.place.items()]
        if num_facts == 2:
            held = [
                (thing, self.place[person][0], tuple(sorted((taken, self.place[person][1]))))
                for thing, (person, taken) in self.holder.items()
            ]
            lying = [(thing, place, supports) for thing, (place, supports) in self.lying.items()]
            return [_Asked(f"Where is the {thing}?", place, found) for thing, place, found in held + lying]
        return [
            _Asked(f"Where was the {thing} before the {place}?", origin, supports)
            for thing, arrivals in self.before.items()
            for place, (origin, supports) in arrivals.items()
        ]


@dataclass(frozen=True, kw_only=True)
class StoriesData:
    """Generated short stories of people, places and things; questions need one to three facts."""

    sides: ClassVar[Sides] = (Facts, Classes)
    train_stories: Positive = 8000
    """Number of stories to train on."""
    validation_stories: Positive = 300
    """Number of stories to validate on; none of them is a training story."""
    test_stories: Positive = 1000
    """Number of stories to test on; none of them is a training or validation story."""
    num_people: Annotated[int, Range(1, len(PEOPLE))] = 4
    """People in the stories, 1 to 12."""
    num_places: Annotated[int, Range(2, len(PLACES))] = 6
    """Places in the stories, 2 to 12: the possible answers."""
    num_objects: Annotated[int, Range(0, len(OBJECTS))] = 3
    """Things that are picked up and put down, 0 to 12."""
    statements: tuple[Length, Length] = (8, 14)
    """Fewest and most statements of a story."""
    questions: Positive = 3
    """Questions asked about each story."""
    facts: tuple[int, ...] = (1, 2, 3)
    """Numbers of supporting facts that questions need (of 1, 2 and 3), each asked equally often."""
    synonyms: bool = True
    """Describe the same event with several verbs ("took", "grabbed", …) instead of one."""
    recent_first: bool = False
    """Give the model the latest fact first (the question stays last)."""
    seed: NumberOf = 0
    """Chooses the stories: the same seed gives the same stories."""

    def __post_init__(self) -> None:
        check(self, field="data")
        if not self.facts or not set(self.facts) <= {1, 2, 3} or len(set(self.facts)) != len(self.facts):
            raise UserError(f"facts must be different numbers out of 1, 2 and 3, found {self.facts}")
        if max(self.facts) > 1 and not self.num_objects:
            raise UserError(f"questions of {max(self.facts)} facts are about things: num_objects must not be 0")
        fewest, most = self.statements
        if not max(self.facts) <= fewest <= most:
            raise UserError(f"statements must be (fewest, most) from {max(self.facts)} on, found {self.statements}")

    def load(self, saved: Saved | None = None) -> Task:
        """Tell the stories and encode them; words and answers are those of training."""
        del saved  # the codec follows from the fields
        splits = {
            split: [*parse(enumerate(chain.from_iterable(stories), start=1), name=f"stories ({split})")]
            for split, stories in self.stories().items()
        }
        codec = fact_codec(splits["train"], recent_first=self.recent_first)

        def encode(split: Split) -> tuple[Example, ...]:
            counted = ((asked, len(asked.supports)) for asked in splits[split])
            return tuple(encode_question(codec, asked, group=f"{n} fact{'s' * (n != 1)}") for asked, n in counted)

        return Task(
            name="stories",
            codec=codec,
            train=encode("train"),
            validation=encode("validation"),
            test={"test": encode("test")},
            metric="error",
        )

    def stories(self) -> dict[Split, list[list[str]]]:
        """Return the stories of each split as lines of the bAbI format; no two have the same statements.

        No story to train on asks a question of validation or test after the same statements.
        """
        counts: dict[Split, int] = {
            "test": self.test_stories,
            "validation": self.validation_stories,
            "train": self.train_stories,
        }  # train comes last, so that its size does not change what is tested
        generated: set[_Statements] = set()
        held_out: set[tuple[_Statements, str]] = set()
        found: dict[Split, list[list[str]]] = {}
        for split, count in counts.items():
            random = Random(f"{self.seed} {split}")
            stories = [self._story(random, generated, held_out if split == "train" else set()) for _ in range(count)]
            held_out |= {key for story in stories for key in _keys(*story)}
            found[split] = [_lines(*story) for story in stories]
        return found

    def _story(
        self, random: Random, generated: set[_Statements], held_out: set[tuple[_Statements, str]]
    ) -> tuple[_Statements, list[tuple[int, _Asked]]]:
        """Return a story that is not in `generated` and asks no question of `held_out`; add it to `generated`."""
        # the questions are drawn first and kept, so that those that few stories allow are not less frequent
        wanted = [random.choice(self.facts) for _ in range(self.questions)]
        for _ in range(_TRIES):
            statements, asked = self._simulate(random, wanted)
            new = len(asked) == len(wanted) and statements not in generated
            if new and held_out.isdisjoint(_keys(statements, asked)):
                generated.add(statements)
                return statements, asked
        raise UserError(
            f"found no further story of {self.statements[0]} to {self.statements[1]} statements with "
            f"{self.questions} questions that differs from {len(generated)} others: ask for fewer stories or "
            f"questions, or for more statements, people, places or objects"
        )

    def _simulate(self, random: Random, wanted: list[int]) -> tuple[tuple[str, ...], list[tuple[int, _Asked]]]:
        """Return the statements of one story, and the questions with the number of statements before each.

        Stops at the first of the `wanted` questions that cannot be asked at the moment drawn for it.
        """
        world = _World()
        length = random.randint(*self.statements)
        moments = sorted(random.randint(1, length) for _ in wanted)
        asked: list[tuple[int, _Asked]] = []
        while len(world.statements) < length:
            self._happen(random, world)
            now = len(world.statements)
            while len(asked) < len(wanted) and moments[len(asked)] == now:
                possible = [
                    question for question in world.questions(wanted[len(asked)]) if (now, question) not in asked
                ]
                if not possible:
                    return tuple(world.statements), asked
                asked.append((now, random.choice(possible)))
        return tuple(world.statements), asked

    def _happen(self, random: Random, world: _World) -> None:
        """Simulate one event: half of the time a move, else a pick-up or a drop where one is possible."""
        chance = random.random()
        if chance >= 0.8 and world.holder:
            return world.drop(random.choice(list(world.holder)), verb=self._verb(random, _DROPS))
        if chance >= 0.5:
            things = OBJECTS[: self.num_objects]
            possible = [
                (person, thing)
                for person, (place, _) in world.place.items()
                for thing in things
                if thing not in world.holder and world.lying.get(thing, (place,))[0] == place
            ]
            if possible:
                return world.pick_up(*random.choice(possible), verb=self._verb(random, _PICK_UPS))
        carriers = [person for person, _ in world.holder.values()]
        # a person who carries something moves more often: questions of three facts need such moves
        person = random.choice(carriers if carriers and random.random() < 0.5 else PEOPLE[: self.num_people])
        here = world.place.get(person, ("", 0))[0]
        place = random.choice([place for place in PLACES[: self.num_places] if place != here])
        return world.move(person, place, verb=self._verb(random, _MOVES))

    def _verb(self, random: Random, verbs: tuple[str, ...]) -> str:
        return random.choice(verbs) if self.synonyms else verbs[0]


def _keys(statements: _Statements, asked: list[tuple[int, _Asked]]) -> Iterator[tuple[_Statements, str]]:
    """Yield what a model reads of each question: the statements before it and its text."""
    yield from ((statements[:moment], question.text) for moment, question in asked)


def _lines(statements: tuple[str, ...], asked: list[tuple[int, _Asked]]) -> list[str]:
    lines: list[str] = []
    ids: list[int] = []
    for index, statement in enumerate(statements, start=1):
        ids.append(len(lines) + 1)
        lines.append(f"{ids[-1]} {statement}")
        for moment, question in asked:
            if moment == index:
                supports = " ".join(str(ids[support]) for support in question.supports)
                lines.append(f"{len(lines) + 1} {question.text}\t{question.answer}\t{supports}")
    return lines
