"""Learning to execute: give the value of a small program, or repeat a long number (tables 5 and 6).

========= ============================== ==============================================
problem   source                         target
========= ============================== ==============================================
copy      ``4071``                       ``4071``
double    ``4071``                       ``40714071``
reverse   ``4071``                       ``1704``
program   ``(37*52) if 41>78 else 66``   ``66``
control   ``x=37 for[4] x+=52``          ``245``
addition  ``(37+52)+41``                 ``130``
========= ============================== ==============================================

The target of a program with literals of ``l`` digits is its value modulo ``10^(l+1)``: the last ``l + 1`` digits,
without leading zeros, never negative. For each training example ``l`` is drawn from 1 to ``max_length``, and the number
of nested operations from 1 to ``max_nesting`` (the mix strategy); validation and test have the largest of both. Figures
are grouped by the operations of the programs, the inner one first (``conditional, then loop``). Once the short programs
are learned, the strategy ``lengths`` spends no more updates on single operations. With ``rounds`` and a curriculum
(``training.curriculum``) loops have one round until programs of all lengths are let in, and then one more each time
that the loss is low enough: ``k c`` is learned as a sum of few terms first. What is learned last, loops in loops, are
more than half of the programs of ``loops``.

Zaremba and Sutskever 2014 wrote programs as lines of Python. ``form="lines"`` writes ``|`` for the end of a line,
because a source is one line of a file: ``j=85|for x in range(8):j+=92|print(j)``.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random
from typing import Annotated, ClassVar, Literal, NamedTuple

from paper.tasks.programs import (
    EXPRESSION_SYMBOLS,
    KINDS,
    LINES_SYMBOLS,
    MAX_ROUNDS,
    VARIABLES,
    draw,
    literal,
)
from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.tasks.algorithmic import LEAST_RATIO
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.digits import DIGITS
from universal_transformer.tasks.lazy import GradedExamples
from universal_transformer.tasks.sides.listed import Symbols
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import NumberOf, Positive, Range, check

LINE_END = "|"
MAX_LENGTH = 1000  # Python does not print numbers of many more digits than that
ExecuteProblem = Literal["copy", "double", "reverse", "program", "control", "addition"]
Form = Literal["expression", "lines"]
Strategy = Literal["mix", "rounds", "lengths", "loops", "baseline"]
LOOPS = 3
"""How many times as often as another operation the strategies ``rounds`` and ``loops`` draw a loop."""


class _Drawn(NamedTuple):
    """A program or number to repeat."""

    key: str
    """The same in both forms."""
    source: str
    target: str
    group: str
    """What its figures are grouped by: the operations of a program, or the length of a number."""


@dataclass(frozen=True, kw_only=True)
class LearningToExecuteData:
    """Generated small programs and their values, or long numbers to repeat."""

    sides: ClassVar[Sides] = (Symbols, Symbols)
    problem: ExecuteProblem = "program"
    """Repeat a number (copy, double, reverse), or run a program of all operations (program), of conditionals and loops
    (control), or of additions (addition)."""
    form: Form = "expression"
    """How programs are written: one nested expression, or lines of Python with assignments and a print."""
    max_length: Annotated[int, Range(0, MAX_LENGTH)] = 0
    """Digits of the longest literals; 0 means the paper's: 55 to repeat, 5 in programs."""
    max_nesting: Annotated[int, Range(1, len(VARIABLES))] = 2
    """Most operations of a program, each inside the next."""
    strategy: Strategy = "mix"
    """Training examples of all lengths and nestings up to the largest (mix), the same with three loops for each other
    operation, of few rounds first (rounds), of all lengths with the largest nesting (lengths), or of the largest of
    both alone, with three loops for each other operation (loops) or with equally many (baseline)."""
    train_examples: Positive = 200_000
    """Training examples in an epoch, generated when they are needed."""
    validation_examples: Positive = 500
    """Validation examples, of the largest length and nesting."""
    test_examples: Positive = 1000
    """Test examples, of the largest length and nesting."""
    seed: NumberOf = 0
    """Chooses the examples: the same seed gives the same examples."""

    def __post_init__(self) -> None:
        check(self, field="data")
        if self.form == "lines" and not self.runs:
            raise UserError(f"form lines is for programs, found the problem {self.problem!r}")
        if self.strategy in ("rounds", "loops") and "loop" not in KINDS.get(self.problem, ()):
            raise UserError(f"strategy {self.strategy} is for programs with loops, found the problem {self.problem!r}")
        held_out = self.validation_examples + self.test_examples
        literals = 9 * 10 ** (self.length - 1)
        # a lower bound of the number of sources of the largest length and nesting
        if literals ** (self.max_nesting + 1 if self.runs else 1) < LEAST_RATIO * held_out:
            raise UserError(
                f"max_length {self.length} leaves too few different sources to hold {held_out} of them out; "
                "ask for fewer examples or longer literals"
            )

    @property
    def runs(self) -> bool:
        return self.problem in KINDS

    @property
    def length(self) -> int:
        """Digits of the literals that are tested on."""
        return self.max_length or (5 if self.runs else 55)

    def load(self, saved: Saved | None = None) -> Task:
        """Generate the test and validation examples; training examples are generated when they are needed.

        The programs and numbers of test and validation differ from each other, and none of them is in training, in
        whichever form it would be written.
        """
        del saved  # the codec follows from the fields
        held_out: set[str] = set()
        test = [self._held_out_example(f"test {index}", held_out) for index in range(self.test_examples)]
        validation = [
            self._held_out_example(f"validation {index}", held_out) for index in range(self.validation_examples)
        ]
        return Task(
            name=f"learning to execute: {self.problem}",
            codec=Codec.shared(self._symbols),
            train=GradedExamples(
                partial(self.training_example, held_out=frozenset(held_out)),
                count=self.train_examples,
                levels=MAX_ROUNDS if self.strategy == "rounds" else 1,
            ),
            validation=validation,
            test={"test": test},
            metric="sequence",
            notes=("programs written as lines of Python",) if self.form == "lines" else (),
        )

    def training_example(self, index: int, level: int, held_out: Set[str]) -> Example:
        """Generate training example `index`, with no program or number of `held_out`.

        With the strategy ``rounds`` loops have up to `level` rounds.
        """
        random = Random(f"{self.problem} {self.seed} train {index}")
        length, nesting = self.length, self.max_nesting
        if self.strategy not in ("loops", "baseline"):
            length = random.randint(1, length)
        if self.strategy in ("mix", "rounds"):
            nesting = random.randint(1, nesting)
        rounds = level if self.strategy == "rounds" else MAX_ROUNDS
        loops = LOOPS if self.strategy in ("rounds", "loops") else 1
        while True:  # at most one in ten is held out
            drawn = self._draw(random, length=length, nesting=nesting, rounds=rounds, loops=loops)
            if drawn.key not in held_out:
                return self._symbols.example(drawn.source, drawn.target)

    def _held_out_example(self, name: str, held_out: set[str]) -> Example:
        random = Random(f"{self.problem} {self.seed} {name}")
        while True:
            drawn = self._draw(random, length=self.length, nesting=self.max_nesting)
            if drawn.key not in held_out:
                held_out.add(drawn.key)
                return self._symbols.example(drawn.source, drawn.target, group=drawn.group)

    def _draw(self, random: Random, *, length: int, nesting: int, rounds: int = MAX_ROUNDS, loops: int = 1) -> _Drawn:
        if not self.runs:
            number = str(literal(random, length=length))
            target = {"copy": number, "double": number * 2}.get(self.problem, number[::-1])
            return _Drawn(number, number, target, group=f"length {length}")
        program = draw(random, problem=self.problem, length=length, nesting=nesting, rounds=rounds, loops=loops)
        target = str(program.value % 10 ** (length + 1))
        source = program.expression
        if self.form == "lines":
            style = Random(f"{self.seed} {program.expression}")  # both forms draw the same programs
            source = program.lines(style).replace("\n", LINE_END)
        return _Drawn(program.expression, source, target, group=program.names)

    @cached_property
    def _symbols(self) -> Symbols:
        if not self.runs:
            return Symbols(symbols=DIGITS[:10])
        return Symbols(symbols=EXPRESSION_SYMBOLS if self.form == "expression" else LINES_SYMBOLS + LINE_END)
