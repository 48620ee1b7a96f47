"""Synthetic pairs of texts, made from a seed, for a first try of summaries, records and treatments.

They are no data about the world, and scores on them say nothing about real texts: names, sentences and facts are drawn
from short lists.

- **summaries**: a report of four to eight sentences on a meeting of a town council, and its decision in one sentence.
  The facts of the decision are in three of the sentences; the others have other matters and other numbers.
- **records**: an order in one sentence, and its fields as ``key=value``. Numbers are written as digits or as words,
  dates in three ways, and a field that the order does not have is ``-``.
- **treatments**: the record of an invented patient, visit by visit, and what is given at each visit. A new condition
  gets its first drug, or its second where the patient is allergic to the first, and the drug is stopped when the
  condition is gone. The dose is 2, and 1 from an age of 70 on. One patient in ten is given double doses for no reason
  that the record has, so that the best possible sequence accuracy is 0.9. All conditions and drugs are invented: a
  model of such records is no medical device.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, NamedTuple
from zlib import crc32

from universal_transformer.errors import UserError

Synthetic = Literal["summaries", "records", "treatments"]
HASHES = 10
PARTS = {"test": range(1), "validation": range(1, 2), "train": range(2, HASHES)}
"""Which hash values of a source belong to a part."""
TRIES = 10_000

TOWNS = ("Arden", "Bexhill", "Corby", "Dunmore", "Elswick", "Farnham", "Gretna", "Hexham", "Ilkley", "Kelso")
NAMES = ("Keller", "Okafor", "Lindqvist", "Tanaka", "Moreau", "Silva", "Novak", "Haddad", "Brandt", "Costa")
WORKS = ("repair", "build", "paint", "sell", "close")
PLACES = ("the old bridge", "the town hall", "the market hall", "the school", "the library", "the swimming pool")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
ITEMS = ("lamp", "chair", "table", "clock", "mirror", "basket", "blanket", "kettle")
COLOURS = ("red", "green", "blue", "white", "black", "brown")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
DRUGS = {
    "arvosis": ("tamil", "orvex"),
    "belliase": ("corin", "pellan"),
    "cordema": ("nuvate", "sarel"),
    "dunnitis": ("velop", "quirin"),
    "elmoria": ("harvon", "lustine"),
    "fendralgia": ("modrel", "iskane"),
}
"""An invented condition -> its first and its second drug, invented too."""
OLD = 70
"""Years from which on doses are halved."""


class Pair(NamedTuple):
    """A source and its target."""

    source: str
    target: str


def synthetic_pairs(kind: Synthetic, part: str, *, seed: int) -> Iterator[Pair]:
    """Yield pairs of a part without end, each with another source; no source is in two parts."""
    draw, found, misses = Random(f"{kind} {seed} {part}"), set(), 0
    while misses < TRIES:
        pair = KINDS[kind](draw)
        misses += 1
        if pair.source not in found and crc32(pair.source.encode()) % HASHES in PARTS[part]:
            found.add(pair.source)
            misses = 0
            yield pair
    raise UserError(f"no other synthetic pair in {TRIES:,} draws; ask for fewer")


def _summary(draw: Random) -> Pair:
    town, place, other = draw.choice(TOWNS), *draw.sample(PLACES, 2)
    work, mayor, speaker = draw.choice(WORKS), *draw.sample(NAMES, 2)
    cost, earlier = draw.sample(range(10, 100), 2)
    against = draw.randint(1, 6)
    votes = draw.randint(against + 1, 12)
    day = draw.choice(DAYS)
    beginning = draw.choice(
        (
            f"The council of {town} met on {day}.",
            f"On {day} the members of the council of {town} came together.",
            f"{town} has decided: the council met on {day} evening.",
        )
    )
    decision = draw.choice(
        (
            f"After a long discussion, {votes} members voted to {work} {place} and {against} voted against it.",
            f"With {votes} votes to {against}, the members agreed to {work} {place}.",
            f"The plan to {work} {place} was accepted: {votes} were for it, {against} were not.",
        )
    )
    price = draw.choice(
        (
            f"This will cost {cost},000 euros.",
            f"The members set {cost},000 euros aside for it.",
            f"Mayor {mayor} expects costs of {cost},000 euros.",
        )
    )
    others = [
        f"Mayor {mayor} opened the meeting.",
        f"{speaker} asked about {other}, and got no answer.",
        f"Last year the council spent {earlier},000 euros on {other}.",
        f"{draw.randint(2, 9)} members were absent.",
        f"The next meeting is on {draw.choice(DAYS)}.",
        f"It rained, and {draw.randint(20, 90)} visitors came.",
    ]
    before, after = draw.sample(others, draw.randint(1, 3)), draw.sample(others, draw.randint(0, 2))
    sentences = [beginning, *before, decision, price, *(one for one in after if one not in before)]
    target = f"{town} will {work} {place} for {cost},000 euros, decided with {votes} to {against} votes."
    return Pair(" ".join(sentences), target)


def _record(draw: Random) -> Pair:
    item, colour, name, town = map(draw.choice, (ITEMS, (*COLOURS, ""), NAMES, (*TOWNS, "")))
    number, order = draw.randint(1, len(NUMBERS)), draw.randint(1000, 9999)
    month, day = draw.randint(1, 12), draw.randint(1, 28)
    amount = draw.choice((str(number), NUMBERS[number - 1]))
    things = " ".join(filter(None, (amount, colour, item if number == 1 else f"{item}s")))
    month_name = MONTHS[month - 1]
    date = draw.choice((f"on {day} {month_name}", f"on {month_name} {day}", f"on {day}.{month}.", ""))
    place, until = f"in {town}" if town else "", f", to arrive {date}" if date else ""
    form = draw.choice(
        (
            f"Order {order}: {things} for {name} {place} {date}",
            f"{name} {place} orders {things}{until} (no. {order})",
            f"please send {things} to {name} {place} {date}, order {order}",
        )
    )
    fields = {
        "order": order,
        "item": item,
        "colour": colour,
        "number": number,
        "name": name,
        "town": town,
        "date": date and f"{month:02}-{day:02}",
    }
    source = " ".join(form.split()).replace(" ,", ",")
    return Pair(source, "; ".join(f"{key}={value or '-'}" for key, value in fields.items()))


def _treatment(draw: Random) -> Pair:
    age, allergy = draw.randint(20, 95), draw.choice(("none", *(first for first, _ in DRUGS.values())))
    dose = (1 if age >= OLD else 2) * draw.choices((1, 2), weights=(9, 1))[0]
    new, given, visits, treatments = draw.sample([*DRUGS], len(DRUGS)), dict[str, str](), list[str](), list[str]()
    for number in range(1, draw.randint(2, 4) + 1):
        gone = [condition for condition in given if draw.random() < 0.4]
        stopped = [given.pop(condition) for condition in gone]
        found = [new.pop() for _ in range(min(draw.randint(number == 1, 2), len(new)))]
        given |= {condition: DRUGS[condition][DRUGS[condition][0] == allergy] for condition in found}
        seen = [*(f"{condition} gone" for condition in gone), *found]
        done = [*(f"stop {drug}" for drug in stopped), *(f"{given[condition]} {dose}" for condition in found)]
        visits.append(f"visit {number}: {', '.join(seen) or 'no change'}")
        treatments.append(", ".join(done) or "none")
    return Pair("; ".join([f"age {age}, allergy {allergy}", *visits]), "; ".join(treatments))


KINDS: dict[Synthetic, Callable[[Random], Pair]] = {
    "summaries": _summary,
    "records": _record,
    "treatments": _treatment,
}
CAVEATS: dict[str, str] = {
    "treatments": "a model of treatments is no medical device: it repeats what was given to the patients of its data"
}
"""What is said with every score of a kind, also on a user's own file."""
