"""Copy, reverse and addition of digits: trained on short sequences, tested on much longer ones (table 4).

======== ================ ==========================
problem  source           target
======== ================ ==========================
copy     ``4071``         ``4071``
reverse  ``4071``         ``1704``
addition ``95+17``        ``112``
======== ================ ==========================

A length is the number of symbols of the source, "+" included. With `least_significant_first` the numbers of an
addition are written from their last digit to their first, in source and target (``59+71`` gives ``211``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from universal_transformer.data.example import Example
from universal_transformer.data.tokenizer import END, SPECIAL
from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path
from universal_transformer.tasks.accuracy import until_end
from universal_transformer.tasks.codecs import SavedCodec, token_fields
from universal_transformer.tasks.lazy import LazyExamples
from universal_transformer.tasks.task import Codec, Task
from universal_transformer.typed import AtLeastOne, NumberOf, Range, check

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
FIRST_SYMBOL = len(SPECIAL)
LEAST_RATIO = 10
"""Sources of a length for each one that is held out, at least: so training always finds another one."""
Problem = Literal["copy", "reverse", "addition"]


def add(first: str, second: str, *, base: int = 10) -> str:
    """Return first + second, numbers written most significant digit first, digit by digit as on paper."""
    carry, digits = 0, []
    width = max(len(first), len(second))
    for left, right in zip(reversed(first.rjust(width, "0")), reversed(second.rjust(width, "0")), strict=True):
        carry, digit = divmod(DIGITS.index(left) + DIGITS.index(right) + carry, base)
        digits.append(DIGITS[digit])
    if carry:
        digits.append(DIGITS[carry])
    return "".join(reversed(digits)).lstrip("0") or "0"


def solve(source: str, *, problem: Problem, base: int = 10, least_significant_first: bool = False) -> str:
    if problem == "copy":
        return source
    if problem == "reverse":
        return source[::-1]
    first, second = source.split("+")
    if least_significant_first:
        return add(first[::-1], second[::-1], base=base)[::-1]
    return add(first, second, base=base)


@dataclass(frozen=True, kw_only=True)
class CharacterCodec(SavedCodec):
    """Characters to ids and back: 0 padding, 1 start, 2 end, 3 unknown, then `symbols`."""

    kind: ClassVar[str] = "characters"
    symbols: str

    @property
    def model_fields(self) -> dict[str, Any]:
        return token_fields("encoder_decoder", size=FIRST_SYMBOL + len(self.symbols))

    def encode(self, text: str, *, where: str = "") -> tuple[int, ...]:
        """Turn characters into ids; a character that is no symbol is a UserError naming it."""
        try:
            return tuple(self._ids[character] for character in text)
        except KeyError as error:
            place = f"{where}: " if where else ""
            raise UserError(f"{place}expected symbols out of {self.symbols!r}, found {show(error.args[0])}") from None

    def example(self, source: str, target: str, *, group: str = "") -> Example:
        """Return the example of a source and its target, with the end id after the target."""
        return Example(source=self.encode(source), target=(*self.encode(target), END), group=group)

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example a line; spaces around it are dropped, empty lines skipped.

        Numbers are read as in training: with their last digit first, if that was chosen.
        """
        for number, line in lines:
            if line.strip():
                where = f"{show_path(name)}:{number}"
                yield Example(source=self.encode(line.strip(), where=where), target=())

    def render(self, target: int | Sequence[int]) -> str:
        """Turn ids up to the end id into text; ids without a symbol become "�"."""
        assert not isinstance(target, int), "the target of an algorithmic task is a sequence"
        return "".join(map(self._symbol, until_end(target, end_id=END)))

    def words(self, example: Example) -> list[str]:
        return [self._symbol(identifier) for identifier in example.source if isinstance(identifier, int)]

    def _symbol(self, identifier: int) -> str:
        index = identifier - FIRST_SYMBOL
        return self.symbols[index] if 0 <= index < len(self.symbols) else "\N{REPLACEMENT CHARACTER}"

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {symbol: FIRST_SYMBOL + index for index, symbol in enumerate(self.symbols)}


@dataclass(frozen=True, kw_only=True)
class AlgorithmicData:
    """Copying, reversing or adding digits: generated examples, short in training and long in the test."""

    codec_class: ClassVar[type[Codec]] = CharacterCodec
    problem: Problem = "copy"
    """What to do with the digits."""
    train_lengths: tuple[int, int] = (1, 40)
    """Shortest and longest training source, in symbols; all lengths are equally frequent."""
    test_lengths: tuple[int, ...] = (40, 80, 200, 400)
    """Lengths of the test sources; each is a row of the report."""
    train_examples: AtLeastOne = 100_000
    """Training examples in an epoch, generated when they are needed."""
    validation_examples: AtLeastOne = 500
    """Validation examples, of the training lengths that are long enough to hold any out."""
    test_examples: AtLeastOne = 200
    """Test examples of each length."""
    base: Annotated[int, Range(2, len(DIGITS))] = 10
    """Number of different digits, 2 to 36."""
    least_significant_first: bool = False
    """Addition: write all numbers from their last digit to their first."""
    seed: NumberOf = 0
    """Chooses the examples: the same seed gives the same examples."""

    def __post_init__(self) -> None:
        check(self, field="data")
        shortest, longest = self.train_lengths
        if not 1 <= shortest <= longest:
            raise UserError(f"train_lengths must be (shortest, longest) from 1 on, found {self.train_lengths}")
        if not self.test_lengths or len(set(self.test_lengths)) != len(self.test_lengths):
            raise UserError(f"test_lengths must be different lengths, found {self.test_lengths}")
        for length in (longest, *self.test_lengths):
            if length < self._shortest:
                raise UserError(f"{self.problem} needs a length of at least {self._shortest}, found {length}")
        if self.least_significant_first and self.problem != "addition":
            raise UserError(f"least_significant_first is for addition, found the problem {self.problem!r}")
        for length in self.test_lengths:
            if self._train_range[0] <= length <= longest and not self._has_enough(length):
                raise UserError(
                    f"test length {length} is a training length with too few different sources to hold "
                    f"{self._held_out} of them out; ask for fewer examples or longer ones"
                )
        if not self._has_enough(longest):
            raise UserError(f"train_lengths end too early ({longest}) to hold {self._held_out} sources out")

    def load(self) -> Task:
        """Generate the test and validation examples; training examples are generated when they are needed."""
        held_out: set[str] = set()
        test = [
            self._example(
                self._held_out_source((length, length), f"test {length} {index}", held_out),
                group=f"length {length}",
            )
            for length in self.test_lengths
            for index in range(self.test_examples)
        ]
        shortest, longest = self._train_range
        lengths = (
            next(length for length in range(shortest, longest + 1) if self._has_enough(length)),
            longest,
        )
        validation = [
            self._example(self._held_out_source(lengths, f"validation {index}", held_out))
            for index in range(self.validation_examples)
        ]
        notes = ("least significant digit first",) if self.least_significant_first else ()
        return Task(
            name=f"algorithmic {self.problem}",
            codec=self._codec,
            train=LazyExamples(partial(self.training_example, held_out=frozenset(held_out)), count=self.train_examples),
            validation=validation,
            test={"test": test},
            metric="sequence",
            model_fields=self._codec.model_fields,
            notes=notes,
        )

    def source(self, random: Random, *, lengths: tuple[int, int]) -> str:
        """Draw one source of a length uniform on `lengths`, both included.

        The place of the "+" of an addition is uniform on those with a digit on both sides; numbers of more than one
        digit do not start with 0.
        """
        length = random.randint(*lengths)
        if self.problem != "addition":
            return "".join(random.choices(DIGITS[: self.base], k=length))
        left = random.randint(1, length - 2)
        numbers = (self._number(random, left), self._number(random, length - 1 - left))
        return "+".join(number[::-1] if self.least_significant_first else number for number in numbers)

    def _number(self, random: Random, length: int) -> str:
        first = random.choice(DIGITS[: self.base] if length == 1 else DIGITS[1 : self.base])
        return first + "".join(random.choices(DIGITS[: self.base], k=length - 1))

    def _example(self, source: str, *, group: str = "") -> Example:
        target = solve(
            source, problem=self.problem, base=self.base, least_significant_first=self.least_significant_first
        )
        return self._codec.example(source, target, group=group)

    def _held_out_source(self, lengths: tuple[int, int], name: str, held_out: set[str]) -> str:
        """Draw a source and hold it out; it is a new one, where the length has enough sources."""
        random = self._random(name)
        source = self.source(random, lengths=lengths)
        while source in held_out and self._has_enough(lengths[1]):
            source = self.source(random, lengths=lengths)
        held_out.add(source)
        return source

    def training_example(self, index: int, held_out: Set[str]) -> Example:
        """Make training example `index`, with none of the sources in `held_out`."""
        random = self._random(f"train {index}")
        source = self.source(random, lengths=self._train_range)
        while source in held_out:  # at most one in ten of any length is held out
            source = self.source(random, lengths=self._train_range)
        return self._example(source)

    def _random(self, name: str) -> Random:
        return Random(f"{self.problem} {self.seed} {name}")

    def _has_enough(self, length: int) -> bool:
        """Whether holding out all test and validation examples leaves nine tenths of this length's sources."""
        sources = self.base**length
        if self.problem == "addition":  # at least so many, for the place of the "+" with the fewest
            sources = (self.base - 1) ** 2 * self.base ** (length - 3)
        return sources >= LEAST_RATIO * self._held_out

    @property
    def _held_out(self) -> int:
        return self.validation_examples + self.test_examples * len(self.test_lengths)

    @property
    def _shortest(self) -> int:
        return 3 if self.problem == "addition" else 1

    @property
    def _train_range(self) -> tuple[int, int]:
        shortest, longest = self.train_lengths
        return max(shortest, self._shortest), longest

    @cached_property
    def _codec(self) -> CharacterCodec:
        return CharacterCodec(symbols=DIGITS[: self.base] + ("+" if self.problem == "addition" else ""))
