"""The result of an evaluation as plain numbers: scores by group, steps of positions, warnings and notes.

A report is read from ``report.json`` to print it or to plot it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from universal_transformer.errors import UserError
from universal_transformer.evaluation.metrics import METRICS, check_metric, scores
from universal_transformer.evaluation.scores import Side as Side
from universal_transformer.evaluation.scores import StepCounts as StepCounts
from universal_transformer.evaluation.scores import mean_over
from universal_transformer.evaluation.scores import show_steps as show_steps
from universal_transformer.files import one_line, read_json, show, show_path, write_json
from universal_transformer.typed import NumberOf, typed

MOST_CLASSES, LONGEST_NAME = 12, 16  # of a confusion matrix that is printed
CONFUSION = "examples by true class (lines) and class given (columns)"


@dataclass(frozen=True)
class ScoreRow:
    """The scores of one group of one test set."""

    set: str
    group: str
    """"" is the whole set."""
    count: NumberOf
    """Examples scored."""
    metrics: dict[str, float]
    """By name (`evaluation.metrics.scores`)."""
    steps: tuple[StepCounts, ...]
    """Of the encoder, the decoder, or both."""
    baseline: dict[str, float] = field(default_factory=dict)
    """The same scores of answers that need no model; empty if the baseline is not known."""
    unfinished: NumberOf = 0
    """Answers that reached the limit of their length without an end."""
    unreachable: NumberOf = 0
    """Targets that are longer than this limit."""

    @property
    def name(self) -> str:
        return self.group or self.set


@dataclass(frozen=True)
class BySupports:
    """Steps of the source positions of all questions with so many supporting facts."""

    num_supports: int
    steps: StepCounts


@dataclass(frozen=True)
class AttentionAtStep:
    """Attention of all questions with so many supporting facts at one step, the mean over heads, blocks and questions.

    Over the K positions that a question attends to, itself among them, with S supporting facts:
    """

    num_supports: int
    step: NumberOf
    """From 1."""
    count: NumberOf
    """Questions that make this step."""
    entropy: float
    """``-Σ a ln a / ln K``: 1 where attention is uniform, 0 where it is on one position."""
    mass: float
    """``K / S`` times the sum of the weights of supporting facts: 1 where attention is uniform."""


@dataclass(frozen=True)
class Confusion:
    """How many examples of one class were given another class, or the same."""

    set: str
    truth: str
    """Name of the class of the examples."""
    given: str
    """Name of the class that the model gave them."""
    count: NumberOf


@dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of `evaluate`."""

    task: str
    metric: str
    """Its name in `METRICS`."""
    split: str
    halting: bool
    """Whether each position halts at its own step."""
    max_steps: int
    """Depth T of the calls: the limit of a halting model; 0 for a model without a recurrence over depth."""
    rows: tuple[ScoreRow, ...]
    """One for each group of each test set."""
    totals: tuple[ScoreRow, ...]
    """One for each test set as a whole."""
    steps_by_supports: tuple[BySupports, ...] = ()
    attention: tuple[AttentionAtStep, ...] = ()
    """Of questions about facts, where it was asked for."""
    confusion: tuple[Confusion, ...] = ()
    """The cells of the confusion matrix that are not 0, of a metric that counts them."""
    signatures: dict[str, str] = field(default_factory=dict)
    """How a score was computed, as its library (sacreBLEU) writes it."""
    baseline: str = ""
    """How the baseline of the rows answers, in words."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_groups(self) -> bool:
        return len(self.rows) > len(self.totals)

    @property
    def headline(self) -> str:
        """Name of the score that figures show first."""
        return next(iter(self.totals[0].metrics))

    @property
    def failed(self) -> tuple[ScoreRow, ...] | None:
        """Groups with a score above `failed_above` (the paper's failed tasks); None for another metric or without
        groups.
        """
        if (limit := self.failed_above) is None or not self.has_groups:
            return None
        return tuple(row for row in self.rows if row.metrics[self.decisive] > limit)

    @property
    def decisive(self) -> str:
        """Name of the score by which models are compared."""
        return METRICS[self.metric].decisive

    @property
    def failed_above(self) -> float | None:
        return METRICS[self.metric].failed_above

    @property
    def failed_means(self) -> str:
        return f"{scores()[self.decisive].title.removesuffix(' %')} above {self.failed_above:.0f} %"

    def mean_over_groups(self, metric: str) -> float:
        """The unweighted mean over groups (table 1's mean error over tasks)."""
        return sum(row.metrics[metric] for row in self.rows) / len(self.rows)

    def steps(self, side: Side) -> StepCounts | None:
        """Steps of one side over all test sets; None where the model has no such side."""
        found = [steps for row in self.totals for steps in row.steps if steps.side == side]
        return sum(found[1:], found[0]) if found else None

    @property
    def fixed_steps(self) -> dict[Side, int]:
        """Steps of the sides on which all positions make equally many; none of a model that halts."""
        sides = () if self.halting else filter(None, map(self.steps, get_args(Side)))
        return {steps.side: round(steps.mean) for steps in sides if sum(map(bool, steps.counts)) == 1}

    @property
    def mean_steps(self) -> float:
        """Mean N over all real positions of both sides."""
        return mean_over(filter(None, map(self.steps, get_args(Side))))

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """The scores of each group of a test set with its examples and, if there are any, its mean steps."""
        several, figures = len(self.totals) > 1, dict[str, dict[str, float]]()
        for row in self.rows:
            steps = {"mean_steps": mean_over(row.steps)} if row.steps else {}
            name = f"{row.set}, {row.group}" if several and row.group else row.name
            figures[name] = {**row.metrics, "count": row.count, **steps}
        return figures

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any], *, name: str = "report") -> Report:
        """Undo `to_dict`; a missing, unknown or wrongly typed field is a UserError that names it."""
        report: Report = typed(fields, cls, where=name)
        check_metric(report.metric, where=f"{name}: metric")
        if not report.totals or not report.rows:
            raise UserError(f"{name}: a report of no rows; expected what evaluation wrote")
        for row in (*report.rows, *report.totals):
            if not row.metrics or not set(row.metrics) | set(row.baseline) <= scores().keys():
                found = ", ".join(map(show, row.metrics | row.baseline))
                raise UserError(f"{name}: scores {found}; known are {', '.join(scores())}")
        return report

    def save(self, path: Path) -> None:
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: Path) -> Report:
        return cls.from_dict(read_json(path), name=show_path(path))

    def lines(self) -> list[str]:
        count = sum(row.count for row in self.totals)
        lines = [f"{self.task} · {self.split} · {count:,} examples", *columns(self.score_table(), names=2)]
        lines += self.remarks()
        for name, table in (self.confusion_tables() | self.step_tables() | attention_tables(self.attention)).items():
            lines += ["", name, *columns(table)]
        lines += [f"{name}: {text}" for name, text in self.signatures.items()]
        lines += [f"warning: {text}" for text in self.warnings]
        return lines + [f"note: {text}" for text in self.notes]

    def remarks(self) -> Iterator[str]:
        """What the scores of groups and the baseline are, in words."""
        if self.has_groups:
            score, mean = scores()[self.headline], self.mean_over_groups(self.headline)
            yield f"mean {score.title} over {len(self.rows)} groups: {score.text(mean)}"
        if self.failed is not None:
            names = f": {', '.join(row.name for row in self.failed)}" if self.failed else ""
            yield f"failed ({self.failed_means}): {len(self.failed)} of {len(self.rows)}{names}"
        if self.baseline:
            yield f"baseline: {self.baseline}"

    def score_table(self) -> list[list[str]]:
        """Scores and steps as text: a head, then the groups of each test set and the whole test set."""
        metrics, decisive, titles = list(self.totals[0].metrics), self.decisive, scores()
        columns = [(name, False) for name in metrics]
        if decisive in self.totals[0].baseline:
            columns.insert(metrics.index(decisive) + 1, (decisive, True))
        sides = [steps.side for steps in self.totals[0].steps]
        fixed = self.fixed_steps
        table = [
            ["test set", "group", "examples"]
            + ["baseline" if trivial else titles[name].title for name, trivial in columns]
            + [f"{side} " * (len(sides) > 1) + ("steps (fixed)" if side in fixed else "steps") for side in sides]
        ]
        for total in self.totals:
            rows = [row for row in self.rows if row.set == total.set]
            table += [
                [row.set, row.group or "all", f"{row.count:,}"]
                + [_score(row.baseline if trivial else row.metrics, name) for name, trivial in columns]
                + [f"{steps.mean:.0f}" if steps.side in fixed else show_steps(steps) for steps in row.steps]
                for row in ([*rows, total] if len(rows) > 1 else [total])
            ]
        return table

    def confusion_tables(self) -> dict[str, list[list[str]]]:
        """Return the confusion matrix of each test set as text, by title; none of more than `MOST_CLASSES` classes."""
        tables = {}
        for total in self.totals:
            cells = {(one.truth, one.given): one.count for one in self.confusion if one.set == total.set}
            names = sorted({name for cell in cells for name in cell})
            if 0 < len(names) <= MOST_CLASSES:
                shown = [one_line(name)[:LONGEST_NAME] for name in names]
                tables[f"{total.set}: {CONFUSION}"] = [["", *shown]] + [
                    [label, *(f"{cells.get((truth, given), 0):,}" for given in names)]
                    for label, truth in zip(shown, names, strict=True)
                ]
        return tables

    def step_tables(self) -> dict[str, list[list[str]]]:
        """Return the steps of the positions of sides on which they differ as text, by title."""
        tables, fixed = {}, self.fixed_steps
        for steps in filter(None, (self.steps(side) for side in get_args(Side) if side not in fixed)):
            shares = [f"{100 * count / steps.num_positions:.1f} %" for count in steps.counts if steps.num_positions]
            if shares:
                title = f"{steps.side}: share of {steps.num_positions:,} positions by steps taken"
                tables[title] = [["steps", *map(str, range(1, len(shares) + 1))], ["share", *shares]]
        if self.halting and self.steps_by_supports:
            title = "steps by number of supporting facts (mean ± standard deviation over positions; 1 is uniform)"
            tables[title] = [["supporting facts", "positions", "steps", "uniformity"]] + [
                [str(group.num_supports), f"{steps.num_positions:,}", show_steps(steps), f"{steps.uniformity:.2f}"]
                for group in self.steps_by_supports
                for steps in [group.steps]
            ]
        return tables


def attention_tables(attention: Iterable[AttentionAtStep]) -> dict[str, list[list[str]]]:
    """Return entropy and mass of the attention of questions as text, by title: one row for each step."""
    by_place = {(at.num_supports, at.step): at for at in attention}
    supports, steps = (sorted({place[axis] for place in by_place}) for axis in (0, 1))
    head = ["step", *(f"{number} supporting" for number in supports)]
    titles = {
        "entropy": "entropy of the attention of questions, divided by that of uniform attention",
        "mass": "attention of questions to supporting facts, relative to uniform attention",
    }

    def cell(name: str, *place: int) -> str:
        return f"{getattr(by_place[place], name):.2f}" if place in by_place else ""

    return {
        title: [head, *([str(step), *(cell(name, number, step) for number in supports)] for step in steps)]
        for name, title in (titles if by_place else {}).items()
    }


def _score(values: Mapping[str, float], name: str) -> str:
    return scores()[name].text(values[name]) if name in values else ""


def columns(rows: list[list[str]], *, names: int = 1) -> Iterable[str]:
    """Columns two blanks apart: the first `names` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if column < names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
