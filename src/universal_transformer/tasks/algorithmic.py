"""Problems on digits: trained on short sequences, tested on much longer ones (table 4, and three problems more).

`digits` has the problems. A length is the number of symbols of a source, the operator included. With
`least_significant_first` a model reads and writes the numbers of an addition or a multiplication from their last digit
to their first. Users read and write them as usual: the codec turns them around.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random
from typing import Annotated, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.digits import (
    DIGITS,
    PROBLEMS,
    Problem,
    draw_number,
    draw_sequence,
    draw_similar,
    solve,
)
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.sides.listed import Symbols
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import Length, NumberOf, Positive, Range, check

LEAST_RATIO = 10
"""Sources of a length for each one that is held out, at least: so training always finds another one."""


Draw = Callable[[Random, tuple[int, int]], str]
"""Draws a source of a length uniform on a range."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmicData:
    """Problems on digits: generated examples, short in training and long in the test."""

    sides: ClassVar[Sides] = (Symbols, Symbols)
    problem: Problem = "copy"
    """What to do with the digits."""
    train_lengths: tuple[Length, Length] = (1, 40)
    """Shortest and longest training source, in symbols; all lengths are equally frequent."""
    test_lengths: tuple[Length, ...] = (40, 80, 200, 400)
    """Lengths of the test sources; each is a row of the report."""
    test_up_to: Length | None = None
    """One more test, of sources of all lengths up to this one, equally frequent: the test of the authors' generator."""
    train_examples: Positive = 100_000
    """Training examples in an epoch, generated when they are needed."""
    validation_examples: Positive = 500
    """Validation examples, of the training lengths that are long enough to hold any out."""
    test_examples: Positive = 200
    """Test examples of each length."""
    base: Annotated[int, Range(2, len(DIGITS))] = 10
    """Number of different digits, 2 to 36."""
    least_significant_first: bool = False
    """Addition and multiplication: the model reads and writes numbers from their last digit to their first."""
    seed: NumberOf = 0
    """Chooses the examples: the same seed gives the same examples."""
    factor_digits: Positive = 1
    """Multiplication: digits of the second factor. The first one has the rest of the length."""
    similar_numbers: Annotated[float, Range(0, 1)] = 0.0
    """Addition: share of the sources, but those of a test, with similar numbers: few different digits, many of them
    equal at the same places. More than 0 also adds a test of such sources for each length."""

    def __post_init__(self) -> None:
        check(self, field="data")
        shortest, longest = self.train_lengths
        if shortest > longest:
            raise UserError(f"train_lengths must be (shortest, longest) from 1 on, found {self.train_lengths}")
        if not self.test_lengths or len(set(self.test_lengths)) != len(self.test_lengths):
            raise UserError(f"test_lengths must be different lengths, found {self.test_lengths}")
        for length in (longest, *self.test_lengths, self.test_up_to or longest):
            if length < self._shortest:
                raise UserError(f"{self.problem} needs a length of at least {self._shortest}, found {length}")
        if self.least_significant_first and not self._operator:
            raise UserError(f"least_significant_first is for numbers, found the problem {self.problem!r}")
        if self.factor_digits != 1 and self.problem != "multiplication":
            raise UserError(f"factor_digits is for multiplication, found the problem {self.problem!r}")
        if self.similar_numbers and self.problem != "addition":
            raise UserError(f"similar_numbers is for addition, found the problem {self.problem!r}")
        if PROBLEMS[self.problem].binary and self.base != 2:
            raise UserError(f"{self.problem} is of binary digits: base must be 2, found {self.base}")
        for length in self.test_lengths:
            if self._train_range[0] <= length <= longest and not self._has_enough(length):
                raise UserError(
                    f"test length {length} is a training length with too few different sources to hold "
                    f"{self._held_out} of them out; ask for fewer examples or longer ones"
                )
        for name, end in (("train_lengths", longest), ("test_up_to", self.test_up_to)):
            if end is not None and not self._has_enough(end):
                raise UserError(f"{name} ends too early ({end}) to hold {self._held_out} sources out")

    def load(self, saved: Saved | None = None) -> Task:
        """Generate the test and validation examples; training examples are generated when they are needed."""
        del saved  # the codec follows from the fields
        held_out: set[str] = set()
        test = [
            self._example(
                self._held_out_source(draw, lengths, f"test {name} {index}", held_out),
                group=f"length {name}",
            )
            for name, (draw, lengths) in self._tests.items()
            for index in range(self.test_examples)
        ]
        lengths = self._lengths_to_hold_out(*self._train_range)
        validation = [
            self._example(self._held_out_source(self._draw, lengths, f"validation {index}", held_out))
            for index in range(self.validation_examples)
        ]
        notes = ("least significant digit first",) if self.least_significant_first else ()
        return Task(
            name=f"algorithmic {self.problem}",
            codec=Codec.shared(self._symbols),
            train=LazyExamples(partial(self.training_example, held_out=frozenset(held_out)), count=self.train_examples),
            validation=validation,
            test={"test": test},
            metric="sequence",
            notes=notes,
        )

    def source(self, random: Random, lengths: tuple[int, int]) -> str:
        """Draw one source of a length uniform on `lengths`, both included.

        The place of the "+" of an addition is uniform on those with a digit on both sides. Numbers of more than one
        digit do not start with 0.
        """
        length = random.randint(*lengths)
        if not self._operator:
            return draw_sequence(random, length, base=self.base)
        left = length - 1 - self.factor_digits if self.problem == "multiplication" else random.randint(1, length - 2)
        numbers = (
            draw_number(random, left, base=self.base),
            draw_number(random, length - 1 - left, base=self.base),
        )
        return self._operator.join(numbers)

    def similar_source(self, random: Random, lengths: tuple[int, int]) -> str:
        """Draw one source of a length uniform on `lengths`, both included: two similar numbers, equally long or with
        one digit more in one of them.
        """
        digits = random.randint(*lengths) - 1
        left = (digits + random.randint(0, 1)) // 2
        return self._operator.join(draw_similar(random, (left, digits - left), base=self.base))

    def _draw(self, random: Random, lengths: tuple[int, int]) -> str:
        similar = self.similar_numbers and random.random() < self.similar_numbers
        return (self.similar_source if similar else self.source)(random, lengths)

    def _example(self, source: str, *, group: str = "") -> Example:
        return self._symbols.example(source, solve(source, problem=self.problem, base=self.base), group=group)

    def _held_out_source(self, draw: Draw, lengths: tuple[int, int], name: str, held_out: set[str]) -> str:
        """Draw a source and hold it out; it is a new one, where the length has enough sources."""
        random = self._random(name)
        source = draw(random, lengths)
        while source in held_out and self._has_enough(lengths[1]):
            source = draw(random, lengths)
        held_out.add(source)
        return source

    def training_example(self, index: int, held_out: Set[str]) -> Example:
        """Make training example `index`, with none of the sources in `held_out`."""
        random = self._random(f"train {index}")
        source = self._draw(random, self._train_range)
        while source in held_out:  # at most one in ten of any length is held out
            source = self._draw(random, self._train_range)
        return self._example(source)

    def _random(self, name: str) -> Random:
        return Random(f"{self.problem} {self.seed} {name}")

    def _has_enough(self, length: int) -> bool:
        """Whether holding out all test and validation examples leaves nine tenths of this length's sources."""
        sources = self.base**length
        if self._operator:  # at least so many, for the place of the operator with the fewest
            sources = (self.base - 1) ** 2 * self.base ** (length - 3)
        return sources >= LEAST_RATIO * self._held_out

    @property
    def _held_out(self) -> int:
        kinds = 2 if self.similar_numbers else 1
        return self.validation_examples + self.test_examples * (len(self.test_lengths) * kinds + bool(self.test_up_to))

    @property
    def _tests(self) -> Mapping[str, tuple[Draw, tuple[int, int]]]:
        """What the name of a test group ends with -> what draws its sources, and their shortest and longest length."""
        kinds = {"": self.source} | ({", similar numbers": self.similar_source} if self.similar_numbers else {})
        tests = {
            f"{length}{kind}": (draw, (length, length)) for kind, draw in kinds.items() for length in self.test_lengths
        }
        if self.test_up_to:
            tests[f"up to {self.test_up_to}"] = self.source, self._lengths_to_hold_out(self._shortest, self.test_up_to)
        return tests

    def _lengths_to_hold_out(self, shortest: int, longest: int) -> tuple[int, int]:
        """The range from the first length that has enough sources."""
        return next(length for length in range(shortest, longest + 1) if self._has_enough(length)), longest

    @property
    def _shortest(self) -> int:
        return 2 + self.factor_digits if self._operator else 1

    @property
    def _operator(self) -> str:
        return PROBLEMS[self.problem].operator

    @property
    def _train_range(self) -> tuple[int, int]:
        shortest, longest = self.train_lengths
        return max(shortest, self._shortest), longest

    @cached_property
    def _symbols(self) -> Symbols:
        operator = self._operator
        reversed_at = operator if self.least_significant_first else ""
        return Symbols(symbols=DIGITS[: self.base] + operator, operator=reversed_at)
