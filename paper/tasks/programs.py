"""Small programs: drawn at random, run, and written in two forms (learning to execute; Zaremba and Sutskever 2014).

A program starts from a literal and applies ``n`` operations one after the other, each to the value so far and to new
literals. `Program.expression` and `Program.lines` write the same program in two forms:

================= ================================ ==========================================
operation on v    expression form                  code-line form
================= ================================ ==========================================
sum, and so on    ``v+c``, ``v-c``, ``v*c``        ``(v+c)``, or ``a=v`` before ``(a+c)``
conditional       ``v if c>d else e`` (or ``<``)   ``(v if c>d else e)``, or with ``a=v`` too
loop, k times     ``x=v for[k] x+=c``              ``a=v``, then ``for x in range(k):a+=c``
================= ================================ ==========================================

All literals of a program have the same number of digits. The code-line form is Python, and so is the expression form
except for its loops.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from random import Random
from typing import ClassVar

EXPRESSION_SYMBOLS = "0123456789+-*<>=()[] efilorsx"
LINES_SYMBOLS = "0123456789+-*<>=(): abcdefghijklmnopqrstuvwxyz"
VARIABLES = "abcdefghijklmnopqrstuvwyz"  # x counts the rounds of a loop
MAX_ROUNDS = 9
APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt}
_NAMES = {"+": "sum", "-": "difference", "*": "product"}


@dataclass(frozen=True)
class Arithmetic:
    """Add, subtract or multiply."""

    sign: str
    operand: int

    @property
    def name(self) -> str:
        return _NAMES[self.sign]

    def apply(self, value: int) -> int:
        return APPLY[self.sign](value, self.operand)

    def write(self, value: str) -> str:
        return f"{value}{self.sign}{self.operand}"


@dataclass(frozen=True)
class Conditional:
    """Keep the value if a comparison of two literals holds, or else take a third literal."""

    name: ClassVar[str] = "conditional"
    left: int
    comparison: str
    right: int
    otherwise: int

    def apply(self, value: int) -> int:
        return value if APPLY[self.comparison](self.left, self.right) else self.otherwise

    def write(self, value: str) -> str:
        return f"{value} if {self.left}{self.comparison}{self.right} else {self.otherwise}"


@dataclass(frozen=True)
class Loop:
    """Add a literal several times."""

    name: ClassVar[str] = "loop"
    rounds: int
    operand: int

    def apply(self, value: int) -> int:
        return value + self.rounds * self.operand

    def write(self, value: str) -> str:
        return f"x={value} for[{self.rounds}] x+={self.operand}"


Operation = Arithmetic | Conditional | Loop
KINDS: dict[str, tuple[str, ...]] = {
    "program": ("+", "-", "*", "conditional", "loop"),
    "control": ("conditional", "loop"),
    "addition": ("+",),
}
"""Problem -> its operations, drawn with equal chance."""


@dataclass(frozen=True)
class Program:
    """A first literal, and the operations on it."""

    first: int
    operations: tuple[Operation, ...]

    @property
    def value(self) -> int:
        value = self.first
        for operation in self.operations:
            value = operation.apply(value)
        return value

    @property
    def names(self) -> str:
        """The names of its operations, the inner one first: `conditional, then loop`."""
        return ", then ".join(operation.name for operation in self.operations)

    @property
    def expression(self) -> str:
        """The expression form: each operation's first operand is the one before it, in brackets."""
        text = str(self.first)
        for place, operation in enumerate(self.operations):
            text = operation.write(f"({text})" if place else text)
        return text

    def lines(self, random: Random) -> str:
        """The code-line form, a Python program that prints its value.

        `random` draws which operands are assigned to a variable first (each with chance 1/2; a loop's always) and
        the names of the variables.
        """
        names = iter(random.sample(VARIABLES, k=len(self.operations)))
        code: list[str] = []
        text = str(self.first)
        for operation in self.operations:
            if isinstance(operation, Loop) or random.random() < 0.5:
                name = next(names)
                code.append(f"{name}={text}")
                text = name
            if isinstance(operation, Loop):
                code.append(f"for x in range({operation.rounds}):{text}+={operation.operand}")
            else:
                text = f"({operation.write(text)})"
        return "\n".join([*code, f"print({text})"])


def literal(random: Random, *, length: int) -> int:
    """Draw a number of `length` digits, the first not 0: uniform on ``[10^(length-1), 10^length - 1]``."""
    return random.randint(10 ** (length - 1), 10**length - 1)


def draw(
    random: Random, *, problem: str, length: int, nesting: int, rounds: int = MAX_ROUNDS, loops: int = 1
) -> Program:
    """Draw a program of `nesting` operations of `problem` (a key of `KINDS`), with literals of `length` digits.

    Loops have up to `rounds` rounds, and are drawn `loops` times as often as another operation.
    """
    first = literal(random, length=length)
    kinds = KINDS[problem] + ("loop",) * (loops - 1)
    return Program(first, tuple(_operation(random, random.choice(kinds), length, rounds) for _ in range(nesting)))


def _operation(random: Random, kind: str, length: int, rounds: int) -> Operation:
    if kind == "conditional":
        left, right, otherwise = (literal(random, length=length) for _ in range(3))
        return Conditional(left, random.choice("<>"), right, otherwise)
    if kind == "loop":
        return Loop(random.randint(1, rounds), literal(random, length=length))
    return Arithmetic(kind, literal(random, length=length))
