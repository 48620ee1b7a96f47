"""Sums that the pretrained model `addition` gets wrong: of a number and itself, and of numbers that share digits.

    python experiments/equal_digits.py

Writes results/equal_digits.md (about a minute). The sources of the tests have random digits, which hardly ever share
more than three digits in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from universal_transformer import load

RESULTS = Path(__file__).parents[1] / "results" / "equal_digits.md"
COUNT = 100
DIGITS = (4, 5, 6, 7, 10, 19)
SHARED_OF = 15
"""Digits of the numbers that share some."""
SHARED = (4, 6, 8, 10, 13)

Pair = tuple[int, int]


def number(draw: Random, digits: int) -> int:
    return draw.randrange(10 ** (digits - 1), 10**digits)


def sharing(draw: Random, digits: int, shared: int) -> Pair:
    """Two numbers with `shared` digits in a row that are equal at the same places; their other digits differ."""
    first = str(number(draw, digits))
    second = [draw.choice([digit for digit in "123456789" if digit != other]) for other in first]
    start = draw.randrange(digits - shared + 1)
    second[start : start + shared] = first[start : start + shared]
    return int(first), int("".join(second))


def page() -> Iterator[str]:
    add = load("addition")

    def wrong(pairs: Sequence[Pair]) -> int:
        answers = add([f"{one}+{two}" for one, two in pairs])
        return sum(answer.text != str(one + two) for answer, (one, two) in zip(answers, pairs, strict=True))

    draw = Random(0)
    yield "# Addition of numbers with equal digits\n"
    yield f"`python experiments/equal_digits.py`: wrong sums of {COUNT}, by the pretrained model `addition`.\n"
    yield "| digits of both numbers | " + " | ".join(map(str, DIGITS)) + " |"
    yield "|---|" + "---|" * len(DIGITS)
    twice = [wrong([(x, x) for x in (number(draw, n) for _ in range(COUNT))]) for n in DIGITS]
    other = [wrong([(number(draw, n), number(draw, n)) for _ in range(COUNT)]) for n in DIGITS]
    yield "| a number and itself | " + " | ".join(map(str, twice)) + " |"
    yield "| two random numbers | " + " | ".join(map(str, other)) + " |\n"
    yield f"| digits in a row that two numbers of {SHARED_OF} digits share | " + " | ".join(map(str, SHARED)) + " |"
    yield "|---|" + "---|" * len(SHARED)
    found = [wrong([sharing(draw, SHARED_OF, shared) for _ in range(COUNT)]) for shared in SHARED]
    yield "| wrong sums | " + " | ".join(map(str, found)) + " |"


if __name__ == "__main__":
    RESULTS.write_text("".join(f"{line}\n" for line in page()), encoding="utf-8")
