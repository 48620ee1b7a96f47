"""A model and a task give a report: scores, and the number of steps that positions took."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, get_args

from universal_transformer.data.example import Example, sizes, spread
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.collapse import collapse
from universal_transformer.evaluation.metrics import Inference, Metric, metric_of, scores
from universal_transformer.evaluation.report import BySupports, Confusion, Report, ScoreRow, Side
from universal_transformer.evaluation.scores import ScoreSums, total
from universal_transformer.evaluation.tensors import check_batches
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.files import show
from universal_transformer.models.components import MOST_STEPS
from universal_transformer.models.model import Model
from universal_transformer.tasks.task import Task
from universal_transformer.typed import Positive, check, typed

Progress = Callable[[int, int], object]
"""Called with the examples done and all examples."""


class Scored(NamedTuple):
    """A batch that was scored."""

    done: int
    """Examples up to now, of `whole`."""
    whole: int
    set: str
    answers: Mapping[int, ScoreSums]
    """What the answers add, by the number of the example in its set."""


Group = tuple[str, str]
"""Test set and group of an example."""
LOGITS = 2**27
"""Most logits of a batch of a language model: half a gigabyte."""


@dataclass(frozen=True)
class Selection:
    """Which examples of a task: a part, a test set or a group of the test sets, and how many of each set."""

    split: str = "test"
    """"test" (all test sets), "validation", "train", or the name of one test set or group."""
    limit: Positive | None = None
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
    watch: Callable[[Scored], object] | None = None,
) -> Report:
    """Score `model` on a split of `task` by its metric (`METRICS`).

    The scores of a `baseline` stand next to those of the model. Answers have the limit of length that prediction has.
    Steps are counted over real source positions and over generated tokens. Warnings say where halting has collapsed,
    answers may be cut, or the baseline is not beaten. The batches change a figure only by rounding. `watch` is called
    after each of them.

    UserError for an unknown split, no examples, or a model that does not fit the task.
    """
    options, metric = options or DecodingOptions(), metric_of(task)
    metric.check(model, options)
    sets, notes = select_examples(task, examples)
    if metric.free_running:
        notes.append(f"free-running output, {options.search_name}")
    answer = partial(metric.answers, Inference(model, options))
    nothing = partial(ScoreSums, count=0)
    groups, trivial = defaultdict[Group, ScoreSums](nothing), defaultdict[Group, ScoreSums](nothing)
    supports = defaultdict[int, ScoreSums](nothing)
    done, count = 0, sum(map(len, sets.values()))
    with evaluating(model):
        for name, found in sets.items():
            for indices in batches(model, found, batch_tokens=batch_tokens, beams=options.num_beams):
                answers = dict(zip(indices, answer([found[index] for index in indices]), strict=True))
                for index, sums in answers.items():
                    example = found[index]
                    groups[name, example.group].add(sums)
                    if baseline is not None:
                        trivial[name, example.group].add(metric.trivial(baseline, example))
                    if example.supports:
                        supports[len(example.supports)].add(sums)
                done += len(indices)
                if watch is not None:
                    watch(Scored(done, count, name, answers))
            if extra := metric.of_set(name, limit=examples.limit, answer=answer):
                groups[name, ""].sums |= extra
                if baseline is not None:
                    trivial[name, ""].sums |= metric.of_set(name, limit=examples.limit, answer=None)
    report = dataclasses.replace(
        summarise(metric, groups, trivial, supports, limit=options.step_limit(model)),
        split=examples.split,
        halting=model.config.halts or options.exit is not None,
        baseline="" if baseline is None else metric.describe(baseline),
        notes=(*notes, *metric.notes(total(groups.values())), *options.notes(model)),
    )
    return dataclasses.replace(report, warnings=tuple(warnings_of(report, model, options)))


def batches(model: Model, examples: Sequence[Example], *, batch_tokens: int, beams: int = 1) -> list[list[int]]:
    """Return the numbers of examples in batches of `batch_tokens` positions, and fewer where a batch of a language
    model would have more than `LOGITS` logits.
    """
    typed(batch_tokens, Positive, where="batch_tokens")
    if not model.config.reads:
        batch_tokens = min(batch_tokens, LOGITS // model.config.vocabulary.size)
    return check_batches(model, sizes(examples), batch_tokens=max(1, batch_tokens // beams))


def summarise(
    metric: Metric,
    groups: Mapping[Group, ScoreSums],
    trivial: Mapping[Group, ScoreSums],
    supports: Mapping[int, ScoreSums],
    *,
    limit: int,
) -> Report:
    """Return the report of the sums of each group, of those of the baseline, and of each number of supporting facts.

    Groups have their natural order: "task 2" is before "task 10". `limit`: most steps of a position.
    """
    ordered = sorted(groups, key=lambda key: natural_sort_key(key[1]))
    sets = {name: [key for key in ordered if key[0] == name] for name, _ in groups}
    if limit == MOST_STEPS:  # as many as positions: no row of counts is longer than needed
        limit = max((n for sums in groups.values() for counts in sums.steps.values() for n in counts), default=1)

    def row(group: str, keys: Sequence[Group]) -> ScoreRow:
        ours, guessed = (total(sums[key] for key in keys if key in sums) for sums in (groups, trivial))
        return ScoreRow(
            keys[0][0],
            group,
            ours.count,
            metric.shown_scores(ours),
            ours.step_counts(limit=limit),
            baseline=metric.shown_scores(guessed) if guessed.count else {},
            unfinished=round(ours.sums.get("unfinished", 0)),
            unreachable=round(ours.sums.get("unreachable", 0)),
        )

    return Report(
        task=metric.task.name,
        metric=metric.task.metric,
        split="",
        halting=False,
        max_steps=limit,
        rows=tuple(row(key[1], [key]) for keys in sets.values() for key in keys),
        totals=tuple(row("", keys) for keys in sets.values()),
        steps_by_supports=tuple(
            BySupports(number, steps)
            for number, sums in sorted(supports.items())
            for steps in sums.step_counts(limit=limit)
            if steps.side == "encoder"
        ),
        confusion=tuple(
            Confusion(name, metric.codec.render(truth), metric.codec.render(given), count)
            for name, keys in sets.items()
            for (truth, given), count in sorted(total(groups[key] for key in keys).confusion.items())
        ),
        signatures=metric.signatures(),
    )


def warnings_of(report: Report, model: Model, options: DecodingOptions) -> Iterator[str]:
    """Yield what is wrong: halting that has collapsed, answers that may be cut, scores no better than the baseline."""
    # neither an exit, nor another threshold, nor a limit below that of training says anything about the halting unit
    full = options.step_limit(model) >= model.config.max_steps
    for side in get_args(Side) if full and options.exit is None and options.halting_threshold is None else ():
        decoder, steps = side == "decoder", report.steps(side)
        if steps is not None and steps.num_positions and model.config.halts_in(decoder=decoder):
            most = options.max_steps or model.config.max_steps_of(decoder=decoder)
            if found := collapse(steps.mean, steps.spread, side=side, max_steps=most):
                yield "halting has collapsed ({}): {}".format(*found)
    cut, long, count = (
        sum(getattr(row, name) for row in report.totals) for name in ("unfinished", "unreachable", "count")
    )
    if long:
        yield (
            f"{long:,} of {count:,} targets ({long / count:.1%}) are longer than an answer may be and cannot be right: "
            f"{options.longer_answers(model)}"
        )
    if cut:
        yield (
            f"{cut:,} of {count:,} answers ({cut / count:.1%}) reached the limit of their length without an end and "
            f"may be cut: {options.longer_answers(model)}"
        )
    yield from not_better(report)


def not_better(report: Report) -> Iterator[str]:
    """Yield a warning for each test set on which the model is not better than the baseline."""
    decisive, score = report.decisive, scores()[report.decisive]
    for row in report.totals:
        if decisive in row.baseline:
            ours, theirs = row.metrics[decisive], row.baseline[decisive]
            if ours >= theirs if score.best == "low" else ours <= theirs:
                yield (
                    f"{row.set}: {score.title} {score.text(ours)} is not better than the baseline, "
                    f"{score.text(theirs)} ({report.baseline})"
                )


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
    notes = [note for note in task.notes if split not in ("validation", "train") or note not in task.test_notes]
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
