"""Problems on digits: sources of a length, and their answers. Numbers are written with their first digit first.

============== =========== ========= =======================================
problem        source      answer    what it is
============== =========== ========= =======================================
copy           ``4071``    ``4071``
reverse        ``4071``    ``1704``
sorting        ``4071``    ``0147``  equal digits are repeated
parity         ``0111``    ``1``     the sum modulo 2
prefix-parity  ``0111``    ``0101``  the parities of 0, 01, 011 and 0111
addition       ``95+17``   ``112``
multiplication ``95*7``    ``665``   a long number times a short one
============== =========== ========= =======================================
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Literal

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
Problem = Literal["copy", "reverse", "sorting", "parity", "prefix-parity", "addition", "multiplication"]


def add(first: str, second: str, *, base: int = 10) -> str:
    """Return first + second, digit by digit as on paper: Python does not print numbers of thousands of digits."""
    width = max(len(first), len(second))
    pairs = zip(reversed(first.rjust(width, "0")), reversed(second.rjust(width, "0")), strict=True)
    return _carried([DIGITS.index(left) + DIGITS.index(right) for left, right in pairs], base=base)


def multiply(first: str, second: str, *, base: int = 10) -> str:
    """Return first · second, as `add` does."""
    places = [0] * (len(first) + len(second))
    for power, left in enumerate(reversed(first)):
        for other, right in enumerate(reversed(second)):
            places[power + other] += DIGITS.index(left) * DIGITS.index(right)
    return _carried(places, base=base)


def _carried(places: list[int], *, base: int) -> str:
    """Return the number whose place of base^i has the value ``places[i]``, which may be more than a digit."""
    carry, digits = 0, []
    for value in places:
        carry, digit = divmod(value + carry, base)
        digits.append(DIGITS[digit])
    while carry:
        carry, digit = divmod(carry, base)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits)).lstrip("0") or "0"


def _prefix_parities(source: str) -> str:
    return "".join(str(total % 2) for total in accumulate(map(int, source)))


@dataclass(frozen=True)
class DigitProblem:
    """How sources of a problem look, and what their answer is."""

    solve: Callable[[str, int], str]
    """(source, base) -> answer."""
    operator: str = ""
    """What stands between the two numbers of a source; empty: a source is one sequence of digits."""
    binary: bool = False
    """Whether it is a problem of binary digits only."""


PROBLEMS: dict[Problem, DigitProblem] = {
    "copy": DigitProblem(lambda source, _: source),
    "reverse": DigitProblem(lambda source, _: source[::-1]),
    "sorting": DigitProblem(lambda source, _: "".join(sorted(source, key=DIGITS.index))),
    "parity": DigitProblem(lambda source, _: _prefix_parities(source)[-1], binary=True),
    "prefix-parity": DigitProblem(lambda source, _: _prefix_parities(source), binary=True),
    "addition": DigitProblem(lambda source, base: add(*source.split("+"), base=base), operator="+"),
    "multiplication": DigitProblem(lambda source, base: multiply(*source.split("*"), base=base), operator="*"),
}


def solve(source: str, *, problem: Problem, base: int = 10) -> str:
    return PROBLEMS[problem].solve(source, base)


def draw_sequence(random: Random, length: int, *, base: int) -> str:
    return "".join(random.choices(DIGITS[:base], k=length))


def draw_number(random: Random, length: int, *, base: int) -> str:
    """Draw a number of `length` digits, uniform; one of several digits does not start with 0."""
    first = random.choice(DIGITS[:base] if length == 1 else DIGITS[1:base])
    return first + draw_sequence(random, length - 1, base=base)


def draw_similar(random: Random, lengths: tuple[int, int], *, base: int) -> tuple[str, str]:
    """Draw two numbers of these lengths out of few different digits, many of them equal at the same places.

    How many different digits there are, and the probability that the second number has the digit of the first at a
    place, counted from the last digit, are uniform. Numbers of several digits do not start with 0.
    """
    allowed = random.sample(DIGITS[:base], k=random.randint(1, base))
    shared = random.random()
    first, second = (_without_zero(random, random.choices(allowed, k=length), base=base) for length in lengths)
    for place in range(1, 1 + min(lengths)):
        if random.random() < shared and (first[-place] != "0" or place < lengths[1]):
            second[-place] = first[-place]
    return "".join(first), "".join(second)


def _without_zero(random: Random, digits: list[str], *, base: int) -> list[str]:
    """Return `digits` with another first one, where they are several and begin with 0."""
    return [random.choice(DIGITS[1:base]), *digits[1:]] if len(digits) > 1 and digits[0] == "0" else digits
