"""Sums that the pretrained model `addition` gets wrong, of numbers whose digits are equal or few.

    python experiments/equal_digits.py

Writes results/studies/equal_digits.md (about five minutes). Random numbers, which the tests of the paper have, hardly
ever share more than three digits in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from study import STUDIES, write_page

from universal_transformer import load

COUNT = 100
DIGITS = (4, 6, 8, 10, 19, 50, 200, 499)
"""Digits of each number; 499 make a source of 999 symbols."""

Pair = tuple[str, str]


def number(draw: Random, digits: int, *, of: str = "0123456789") -> str:
    return draw.choice("123456789") + "".join(draw.choices(of, k=digits - 1))


def itself(draw: Random, digits: int) -> Pair:
    one = number(draw, digits)
    return one, one


def half_shared(draw: Random, digits: int) -> Pair:
    """Two numbers whose digits are equal at half of the places, in a row; their other digits differ."""
    first = number(draw, digits)
    second = [draw.choice([digit for digit in "123456789" if digit != other]) for other in first]
    start = draw.randrange(digits - digits // 2 + 1)
    second[start : start + digits // 2] = first[start : start + digits // 2]
    return first, "".join(second)


def powers(draw: Random, digits: int) -> Pair:
    return number(draw, digits, of="0"), number(draw, digits, of="0")


def binary(draw: Random, digits: int) -> Pair:
    return number(draw, digits, of="01"), number(draw, digits, of="01")


def carries(draw: Random, digits: int) -> Pair:
    return "9" * digits, draw.choice("123456789")


def random(draw: Random, digits: int) -> Pair:
    return number(draw, digits), number(draw, digits)


KINDS: dict[str, Callable[[Random, int], Pair]] = {
    "a number and itself": itself,
    "numbers that share half of their digits, in a row": half_shared,
    "one digit, then zeros (`3000+5000`)": powers,
    "one digit, then zeros and ones (`3011+5010`)": binary,
    "nines and one digit (`9999+4`)": carries,
    "two random numbers": random,
}


def page() -> Iterator[str]:
    add, draw = load("addition"), Random(0)
    yield "# Addition of numbers with equal digits\n"
    yield f"`python experiments/equal_digits.py`: wrong sums of {COUNT}, by the pretrained model `addition`.\n"
    yield "| digits of a number | " + " | ".join(map(str, DIGITS)) + " |"
    yield "|---|" + "---|" * len(DIGITS)
    for name, pair in KINDS.items():
        wrong = []
        for digits in DIGITS:
            sums = [pair(draw, digits) for _ in range(COUNT)]
            answers = add([f"{one}+{other}" for one, other in sums])
            right = [str(int(one) + int(other)) for one, other in sums]
            wrong.append(sum(answer.text != total for answer, total in zip(answers, right, strict=True)))
        yield f"| {name} | " + " | ".join(map(str, wrong)) + " |"


if __name__ == "__main__":
    write_page(STUDIES / "equal_digits.md", page())
