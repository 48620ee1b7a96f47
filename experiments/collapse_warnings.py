"""Compare the warnings of collapsed halting with all recorded runs that halt.

    python experiments/collapse_warnings.py

Writes results/studies/collapse_warnings.md.

A side of a model (encoder or decoder) is listed where the mean and the standard deviation of its steps are recorded: in
reports and in results of tables, in the steps by supporting facts of bAbI (one-sided models), and in the warnings of
tables that were recorded before the steps of each side were. Two labels that the warnings do not use are compared with
them:

- alike: at least 95 % of the positions take the same number of steps. Of runs that recorded only mean m and standard
  deviation s, the share of the nearest number n is at least ``1 - s² - (m - n)²`` (Chebyshev), which is what is used.
- worse: its twin, the run of the same recipe at a fixed depth with the same seed, positions and number of updates, has
  a better validation score (error of classifiers, else cross-entropy), by more than 2 % of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from study import PROJECT, STUDIES, read_lines

from paper.results import Result, ResultsFile
from paper.tables import TABLES
from universal_transformer.evaluation.collapse import CONSTANT, DEEP, SHALLOW, collapse
from universal_transformer.evaluation.report import Side, StepCounts
from universal_transformer.files import write_text
from universal_transformer.models.model_config import config_from_dict

RESULTS = PROJECT / "results"
ALIKE, BETTER = 0.95, 0.02
WARNING = re.compile(r"(encoder|decoder) positions .* \(steps ([\d.]+) ± ([\d.]+) of")


@dataclass(frozen=True)
class SideOfRun:
    """The steps of one side of a recorded run."""

    run: str
    side: str
    max_steps: int
    mean: float
    spread: float
    share: float
    """Positions that take the most frequent number of steps; at least this much where only m and s are known."""
    excess: float | None
    """How much worse than its twin of fixed depth the run is on validation, as a share; None without a twin."""

    @property
    def alike(self) -> bool:
        return self.share >= ALIKE

    def warned(self, *, shallow: float = SHALLOW, deep: float = DEEP, constant: float = CONSTANT) -> bool:
        return self.mean < shallow or self.mean > deep * self.max_steps or self.spread < constant


def share_of(mean: float, spread: float) -> float:
    return max(0.0, 1 - spread**2 - (mean - round(mean)) ** 2)


def from_counts(run: str, counts: StepCounts, excess: float | None) -> SideOfRun:
    share = max(counts.counts) / counts.num_positions
    return SideOfRun(run, counts.side, len(counts.counts), counts.mean, counts.spread, share, excess)


def of_result(one: Result, excess: float | None) -> Iterator[SideOfRun]:
    name, config = f"{one.table} {one.row}", config_from_dict(one.settings["model"])
    if one.steps:
        for side in get_args(Side):
            if side in one.steps and config.halts_in(decoder=side == "decoder"):
                yield from_counts(name, StepCounts(side, tuple(one.steps[side])), excess)
        return
    if one.steps_by_supports:
        counts = tuple(map(sum, zip(*one.steps_by_supports.values(), strict=True)))
        yield from_counts(name, StepCounts("encoder", counts), excess)
        return
    for text in final(one):
        if found := WARNING.search(text):
            side, mean, spread = found[1], float(found[2]), float(found[3])
            yield SideOfRun(name, side, config.max_steps, mean, spread, share_of(mean, spread), excess)


def halts(settings: dict[str, Any]) -> bool:
    return bool(getattr(config_from_dict(settings["model"]), "halts", False))


def compared(one: Result) -> tuple[int, str]:
    """What a run and its twin have in common: seed, positions, order of digits and limits of the training."""
    model, training = one.settings["model"], one.settings["training"]
    order = one.settings["data"]["fields"].get("least_significant_first")
    return one.seed, f"{model.get('coordinates')} {order} {training['max_updates']} {training['minutes']}"


def read_tables() -> Iterator[tuple[Result, float | None]]:
    """Yield every recorded run of a table that halts, and how much worse it is than its twin."""
    for table in TABLES:
        path = RESULTS / "paper" / f"{table}.jsonl"
        results = ResultsFile(path, table=table, say=print).read() if path.exists() else []
        best: dict[tuple[str, tuple[int, str]], Result] = {}
        for one in results:
            key = one.row, compared(one)
            if not halts(one.settings) and (key not in best or one.rank < best[key].rank):
                best[key] = one
        for one in filter(lambda one: halts(one.settings), results):
            row = one.row.replace("-2x", "").replace("ut-halting", "ut").replace("/halting", "/fixed")
            twin = best.get((row, compared(one)))
            yield one, None if twin is None else worse_by(one.rank[0], over=twin.rank[0])


def worse_by(own: float, *, over: float) -> float:
    """By which share a score is worse than that of a twin; infinity over a twin without errors."""
    if over:
        return own / over - 1
    return math.inf if own else 0.0


def read_defaults() -> Iterator[SideOfRun]:
    lines = read_lines(STUDIES / "own_file_defaults.jsonl")
    ranks = {
        (line["data"], line["variant"]): line["end"]["error" if line["recipe"] == "labelled" else "cross_entropy"]
        for line in lines
    }
    for line in filter(lambda line: line["report"]["halting"], lines):
        twin = ranks.get((line["data"], line["variant"].replace("halting", "fixed")))
        excess = None if twin is None else worse_by(ranks[line["data"], line["variant"]], over=twin)
        for steps in line["report"]["totals"][0]["steps"]:
            counts = StepCounts(steps["side"], tuple(steps["counts"]))
            yield from_counts(f"defaults {line['data']}, {line['variant']}", counts, excess)


def rules(sides: Iterable[SideOfRun]) -> Iterator[str]:
    """Compare thresholds: the ones in use, and each replaced by the one first proposed."""
    sides = list(sides)
    yield "| mean below | mean above, of the cap | deviation below | warned | false | missed | with a twin | worse |"
    yield "|---|---|---|---|---|---|---|---|"
    for shallow, deep, constant in (
        (SHALLOW, DEEP, CONSTANT),
        (1.2, DEEP, CONSTANT),
        (SHALLOW, 0.95, CONSTANT),
        (SHALLOW, DEEP, 0.05),
        (SHALLOW, DEEP, 0.25),
        (1.2, 0.95, 0.05),
    ):
        warned = [one for one in sides if one.warned(shallow=shallow, deep=deep, constant=constant)]
        missed = [one for one in sides if one.alike and one not in warned]
        twins = [one for one in warned if one.excess is not None]
        worse = sum((one.excess or 0) > BETTER for one in twins)
        false = sum(not one.alike for one in warned)
        cells = (shallow, deep, constant, len(warned), false, len(missed), len(twins), worse)
        yield f"| {' | '.join(f'{cell:g}' for cell in cells)} |"


def watch(results: Iterable[Result]) -> Iterator[str]:
    """Compare the warnings during training with those of the trained model."""
    pairs = [(any("500" in text for text in one.warnings), any(map(WARNING.search, final(one)))) for one in results]
    for early in (True, False):
        found = [pairs.count((early, late)) for late in (True, False)]
        yield f"| {'warned in training' if early else 'not warned in training'} | {found[0]} | {found[1]} |"


def final(one: Result) -> list[str]:
    return [text for text in one.warnings if "500" not in text]


INTRODUCTION = """\
# Warnings of collapsed halting, against all recorded runs

`python experiments/collapse_warnings.py` computes this page from the results of the tables, of the depth study and
of the defaults for own files. A side is warned about when nearly all of its positions take one step (shallow), the cap
(deep) or the same number (constant). It is *alike* when at least 95 % of its positions take the same number of steps.
*Worse by* compares validation with that of the run of the same recipe and length at a fixed depth, also where the cap
is twice that depth (error of classifiers, else cross-entropy); a run is *worse* above 2 %.

Tables record the steps of each side since November 2026. Of earlier runs with an encoder and a decoder they have the
deviation of a side only if it was warned about: sides that should have been warned about and were not are found only
among the other runs.

"""


def page() -> str:
    runs = list(read_tables())
    sides = [*(side for one, excess in runs for side in of_result(one, excess)), *read_defaults()]
    unseen = [one for one, _ in runs if not list(of_result(one, None))]
    partly = [one for one, _ in runs if not (one.steps or one.steps_by_supports) and one not in unseen]
    warnings = sum(side.warned() for one in partly for side in of_result(one, None))
    quiet = [one for one in sides if (one.excess or 0) > BETTER and not one.warned()]
    lines = [
        *INTRODUCTION.splitlines(),
        "## Thresholds",
        "",
        "The first line is in use. False: warned about, not alike. Missed: alike, not warned about. Worse: warned",
        "about, and worse than the twin of fixed depth.",
        "",
        *rules(sides),
        "",
        "## During training",
        "",
        "The watch of the training warns after 500 updates; the trained model is measured at the end. Runs of tables:",
        "",
        "| | warned about the trained model | not |",
        "|---|---|---|",
        *watch(one for one, _ in runs),
        "",
        "## What no warning finds",
        "",
        "Runs that are not alike, with a fixed depth that is better:",
        "",
        *(f"- {one.run}: {one.mean:.2f} ± {one.spread:.2f} steps, worse by {one.excess:.1%}" for one in quiet),
        "",
        "## Sides",
        "",
        f"{len(sides)} sides of {len({one.run for one in sides})} rows. No side of {len(unseen)} more runs has a "
        f"recorded deviation: {', '.join(f'{one.table} {one.row}' for one in unseen)}. {len(partly)} earlier runs have "
        f"only the sides that were warned about, with {warnings} warnings: a missed side would not be seen there.",
        "",
        "| run | side | steps | alike | worse by | kind |",
        "|---|---|---|---|---|---|",
        *map(row, sides),
    ]
    return "\n".join(lines) + "\n"


def row(one: SideOfRun) -> str:
    kind, _ = collapse(one.mean, one.spread, side=one.side, max_steps=one.max_steps) or ("", "")
    steps = f"{one.mean:.2f} ± {one.spread:.2f} of {one.max_steps}"
    excess = "" if one.excess is None else f"{one.excess:+.1%}"
    return f"| {one.run} | {one.side} | {steps} | {one.share:.1%} | {excess} | {kind} |"


if __name__ == "__main__":
    write_text(STUDIES / "collapse_warnings.md", page())
