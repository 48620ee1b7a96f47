"""What the answers to examples add up to, and how scores and steps are written. Needs no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from universal_transformer.typed import NumberOf

Side = Literal["encoder", "decoder"]


class Score(NamedTuple):
    """How a score is written, and whether a low or a high one is good."""

    name: str
    title: str
    decimals: int
    best: Literal["low", "high"]

    def text(self, value: float) -> str:
        return f"{value:.{self.decimals}f}"


FAILED_ABOVE = 5.0
"""Per cent: the paper's table 1 calls a task with a larger error failed."""


ERROR = Score("error", "error %", 2, "low")
ACCURACY = Score("accuracy", "accuracy", 3, "high")
SEQUENCE_ACCURACY = Score("sequence_accuracy", "sequence accuracy", 3, "high")
MACRO_F1 = Score("macro_f1", "macro-F1", 3, "high")


@dataclass(frozen=True)
class StepCounts:
    """Numbers of positions that took 1, 2, 3 … steps (N of the paper): ``counts[n - 1]`` positions took n."""

    side: Side
    counts: tuple[NumberOf, ...]

    @property
    def num_positions(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        return sum(n * count for n, count in enumerate(self.counts, start=1)) / max(1, self.num_positions)

    @property
    def spread(self) -> float:
        """Standard deviation of N over positions (of the population)."""
        mean = self.mean
        squares = sum(count * (n - mean) ** 2 for n, count in enumerate(self.counts, start=1))
        return math.sqrt(squares / max(1, self.num_positions))

    @property
    def uniformity(self) -> float:
        """Entropy of the shares of 1 to T steps, divided by ``ln T``: 1 where all are equally frequent."""
        shares = [count / self.num_positions for count in self.counts if count]
        return sum(share * math.log(1 / share) for share in shares) / math.log(max(2, len(self.counts)))

    def __add__(self, other: StepCounts) -> StepCounts:
        assert (self.side, len(self.counts)) == (other.side, len(other.counts))
        return StepCounts(self.side, tuple(map(sum, zip(self.counts, other.counts, strict=True))))


def mean_over(sides: Iterable[StepCounts]) -> float:
    """Mean N over the positions of all sides."""
    counted = [(steps.mean, steps.num_positions) for steps in sides]
    return sum(mean * number for mean, number in counted) / max(1, sum(number for _, number in counted))


@dataclass
class ScoreSums:
    """What one example, or a group of them, adds to the scores."""

    count: int = 1
    sums: dict[str, float] = field(default_factory=dict)
    steps: dict[Side, Counter[int]] = field(default_factory=dict)
    """How many positions took a number of steps."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Hypothesis and reference, for scores of a whole corpus."""
    confusion: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often the model gave an example of one class another (or the same): by (true class, class given)."""
    answer: tuple[int, ...] = ()
    """What the model gave to one example: a class, a class for each position, or tokens."""

    def after(self, *, encoder: Iterable[float] = (), decoder: Iterable[float] = ()) -> ScoreSums:
        """Note the steps of the positions of each side, and return these sums."""
        self.steps = {"encoder": Counter(map(int, encoder)), "decoder": Counter(map(int, decoder))}
        return self

    def add(self, other: ScoreSums) -> None:
        self.count += other.count
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for side, counts in other.steps.items():
            self.steps.setdefault(side, Counter()).update(counts)
        self.texts += other.texts
        self.confusion.update(other.confusion)

    def step_counts(self, *, limit: int) -> tuple[StepCounts, ...]:
        """The steps as a report has them; empty for a model without a recurrence over depth."""
        return tuple(
            StepCounts(side, tuple(counts[n] for n in range(1, limit + 1)))
            for side, counts in self.steps.items()
            if counts
        )

    def mean(self, name: str) -> float:
        return self.sums[name] / self.count

    def ratio(self, name: str, *, over: str) -> float:
        """One sum over another, which counts as 1 at least."""
        return self.sums[name] / max(1.0, self.sums[over])


def total(parts: Iterable[ScoreSums]) -> ScoreSums:
    whole = ScoreSums(count=0)
    for part in parts:
        whole.add(part)
    return whole


def show_steps(steps: StepCounts) -> str:
    """Mean and standard deviation as in the paper, with one more digit: "2.31 ± 0.82"."""
    return f"{steps.mean:.2f} ± {steps.spread:.2f}"
