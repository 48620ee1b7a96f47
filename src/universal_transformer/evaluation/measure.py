"""A model and a task give a report: scores, and the number of steps that positions took."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from universal_transformer.data.example import Example, sizes, spread
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.collapse import collapse
from universal_transformer.evaluation.memory_check import check_batches
from universal_transformer.evaluation.metrics import Inference, Metric, metric_of
from universal_transformer.evaluation.report import BySupports, Confusion, Report, ScoreRow, Side, StepCounts
from universal_transformer.evaluation.scores import GroupSums, ScoreSums
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.files import show
from universal_transformer.models.components import MOST_STEPS
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.typed import AtLeastOne, check, typed

Progress = Callable[[int, int], object]
"""Called with the examples done and all examples."""

LOGITS = 2**27
"""Most logits of a batch of a language model: half a gigabyte."""


@dataclass(frozen=True)
class Selection:
    """Which examples of a task: a part, a test set or a group of the test sets, and how many of each set."""

    split: str = "test"
    """"test" (all test sets), "validation", "train", or the name of one test set or group."""
    limit: AtLeastOne | None = None
    """So many examples of each set, evenly spread; None: all."""

    def __post_init__(self) -> None:
        check(self)


TESTS = Selection()


def evaluate(
    model: Model,
    task: Task,
    examples: Selection = TESTS,
    *,
    options: DecodingOptions | None = None,
    batch_tokens: int = 16384,
    baseline: TrivialBaseline | None = None,
    progress: Progress | None = None,
) -> Report:
    """Score `model` on a split of `task` by its metric (`METRICS`).

    The scores of a `baseline` stand next to those of the model, with a warning for each test set on which the model is
    not better. Answers have the limit of length that prediction has, with a warning if some reach it. Steps are counted
    over real source positions and over generated tokens. The batches change a figure only by rounding, and with several
    beams because a search continues to the longest target of its batch.

    UserError for an unknown split, no examples, or a model that does not fit the task.
    """
    options, metric = options or DecodingOptions(), metric_of(task)
    metric.check(model, options)
    sets, notes = select_examples(task, examples)
    if metric.free_running:
        notes.append(f"free-running output, {options.search_name}")
    sums, trivial = GroupSums(), GroupSums()
    done, total = 0, sum(map(len, sets.values()))
    answer = partial(metric.answers, Inference(model, options))
    with evaluating(model):
        for name, found in sets.items():
            for chosen in batches(model, found, batch_tokens=batch_tokens, beams=options.num_beams):
                sums.add(name, chosen, answer(chosen))
                if baseline is not None:
                    trivial.add(name, chosen, [metric.trivial(baseline, example) for example in chosen])
                done += len(chosen)
                if progress is not None:
                    progress(done, total)
            sums.add_to_set(name, metric.of_set(name, limit=examples.limit, answer=answer))
            if baseline is not None:
                trivial.add_to_set(name, metric.of_set(name, limit=examples.limit, answer=None))
    report = summarise(metric, sums, trivial, split=examples.split, limit=options.step_limit(model))
    halting = model.config.halts or options.exit is not None
    described = "" if baseline is None else metric.describe(baseline)
    report = dataclasses.replace(report, halting=halting, baseline=described)
    # neither an exit, nor another threshold, nor a limit below that of training says anything about the halting unit
    own = (
        options.exit is None
        and options.halting_threshold is None
        and options.step_limit(model) >= model.config.max_steps
    )
    warnings = collapses(report, model, max_steps=options.max_steps) if own else []
    return dataclasses.replace(
        report,
        notes=(*task.notes, *notes, *options.notes(model)),
        warnings=(*warnings, *report.cut_answers(remedy=options.longer_answers(model)), *report.not_better()),
    )


def batches(model: Model, examples: Sequence[Example], *, batch_tokens: int, beams: int = 1) -> list[list[Example]]:
    """Return examples in batches of `batch_tokens` positions, and fewer where a batch of a language model would have
    more than `LOGITS` logits.
    """
    typed(batch_tokens, AtLeastOne, where="batch_tokens")
    if not model.config.reads:
        batch_tokens = min(batch_tokens, LOGITS // model.config.vocabulary.size)
    sampler = check_batches(model, sizes(examples), batch_tokens=max(1, batch_tokens // beams))
    return [[examples[index] for index in indices] for indices in sampler.epoch(0)]


def summarise(metric: Metric, sums: GroupSums, trivial: GroupSums, *, split: str, limit: int) -> Report:
    """Return the report of the model's sums and of those of the baseline (empty if there is none).

    Groups have their natural order: "task 2" is before "task 10". `limit`: most steps of a position.
    """
    wholes, trivial_wholes = sums.wholes(), trivial.wholes()
    if limit == MOST_STEPS:  # as many as positions: no row of counts is longer than needed
        limit = max((n for found in wholes.values() for counts in found.steps.values() for n in counts), default=1)

    def row(name: str, group: str, found: ScoreSums, answered: ScoreSums | None) -> ScoreRow:
        return ScoreRow(
            name,
            group,
            found.count,
            metric.shown_scores(found),
            step_counts(found, limit=limit),
            baseline={} if answered is None else metric.shown_scores(answered),
            unfinished=round(found.sums.get("unfinished", 0)),
        )

    places = {name: place for place, name in enumerate(wholes)}
    ordered = sorted(sums.groups, key=lambda key: (places[key[0]], natural_sort_key(key[1])))
    return Report(
        task=metric.task.name,
        metric=metric.task.metric,
        split=split,
        halting=False,
        max_steps=limit,
        rows=tuple(row(*key, sums.groups[key], trivial.groups.get(key)) for key in ordered),
        totals=tuple(row(name, "", found, trivial_wholes.get(name)) for name, found in wholes.items()),
        steps_by_supports=tuple(
            BySupports(number, steps)
            for number, found in sorted(sums.by_supports.items())
            for steps in step_counts(found, limit=limit)
            if steps.side == "encoder"
        ),
        confusion=tuple(
            Confusion(name, metric.codec.render(truth), metric.codec.render(given), count)
            for name, found in wholes.items()
            for (truth, given), count in sorted(found.confusion.items())
        ),
        signatures=metric.signatures(),
    )


def step_counts(sums: ScoreSums, *, limit: int) -> tuple[StepCounts, ...]:
    """Return the steps as a report has them; empty for a model without a recurrence over depth."""
    return tuple(
        StepCounts(side, tuple(counts[n] for n in range(1, limit + 1))) for side, counts in sums.steps.items() if counts
    )


def collapses(report: Report, model: Model, *, max_steps: int | None) -> Iterator[str]:
    """Yield a warning for each side whose halting has collapsed. `max_steps` of the calls, or None: as trained."""
    for side in get_args(Side):
        decoder, steps = side == "decoder", report.steps(side)
        if steps is not None and model.config.halts_in(decoder=decoder):
            most = max_steps or model.config.max_steps_of(decoder=decoder)
            if text := collapse(steps, max_steps=most):
                yield text


MOST_NAMED = 30
"""Names that an error lists."""


def select_examples(task: Task, chosen: Selection) -> tuple[dict[str, Sequence[Example]], list[str]]:
    """Return the examples of a part, of a test set, or of a group of the test sets, and notes on what was left out."""
    sets: dict[str, Sequence[Example]]
    split, limit = chosen.split, chosen.limit
    if split == "test":
        sets = dict(task.test)
    elif split in ("validation", "train"):
        sets = {split: task.validation if split == "validation" else task.train}
    elif split in task.test:
        sets = {split: task.test[split]}
    else:
        grouped = {name: [one for one in examples if one.group == split] for name, examples in task.test.items()}
        sets = {name: found for name, found in grouped.items() if found}
    if not sets:
        groups = dict.fromkeys(example.group for examples in task.test.values() for example in examples)
        allowed = [name for name in dict.fromkeys(("test", "validation", "train", *task.test, *groups)) if name]
        more = f", … ({len(allowed) - MOST_NAMED} more)" if len(allowed) > MOST_NAMED else ""
        raise UserError(
            f"split {show(split)}: allowed for task {task.name} are {', '.join(allowed[:MOST_NAMED])}{more}"
        )
    notes = []
    for name, examples in sets.items():
        if not len(examples):
            raise UserError(f"task {task.name}: no examples in {name}; expected at least one to score")
        if limit is not None and len(examples) > limit:
            notes.append(f"{name}: {limit:,} of {len(examples):,} examples, evenly spread")
            sets[name] = spread(examples, count=limit)
    return sets, notes


def natural_sort_key(name: str) -> list[tuple[int, int | str]]:
    """Sort numbers inside names by value."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part]
