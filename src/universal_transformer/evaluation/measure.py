"""A model and a task give a report: scores, and the number of steps that positions took."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from universal_transformer.data.example import Example, sizes, spread
from universal_transformer.decoding.generation import evaluating
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.errors import UserError
from universal_transformer.evaluation.collapse import collapse
from universal_transformer.evaluation.memory_check import check_batches
from universal_transformer.evaluation.report import BySupports, Confusion, Report, ScoreRow, Side
from universal_transformer.evaluation.returns import add_returns
from universal_transformer.evaluation.scores import GroupSums, ScoreSums, scores
from universal_transformer.evaluation.scoring import Scorer
from universal_transformer.evaluation.texts import check_packages
from universal_transformer.evaluation.trivial import TrivialBaseline
from universal_transformer.files import show
from universal_transformer.models.model import Model
from universal_transformer.nn.config import MOST_STEPS
from universal_transformer.tasks.task import Measure, Task
from universal_transformer.typed import AtLeastOne, check, typed

Progress = Callable[[int, int], object]
"""Called with the examples done and all examples."""

ARCHITECTURES: Mapping[str, str] = {
    "error": "classifier",
    "classes": "classifier",
    "accuracy": "classifier",
    "positions": "tagger",
    "tags": "tagger",
    "sequence": "encoder_decoder",
    "bleu": "encoder_decoder",
    "rouge": "encoder_decoder",
    "words": "encoder_decoder",
    "brackets": "encoder_decoder",
    "perplexity": "language_model",
    "last_word": "language_model",
    "ranking": "language_model",
    "intensities": "encoder_decoder",
    "actions": "classifier",
    "frames": "encoder_decoder",
}
"""Which architecture a metric can score."""

WRITTEN: tuple[Measure, ...] = ("sequence", "bleu", "rouge", "words", "brackets", "frames")
"""Metrics of output that a model writes freely, without a target token."""

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
    """Score `model` on a split of `task`.

    | metric     | score                                                                                    |
    | ---------- | ---------------------------------------------------------------------------------------- |
    | error      | per cent of examples whose class the largest logit does not name                         |
    | classes    | the same, accuracy, macro-F1 (`scores.macro_f1`), and the confusion matrix                |
    | accuracy   | share of examples whose class the largest logit names                                    |
    | positions  | share of examples with the right class at every position, and share of positions           |
    | tags       | share of positions with the right class, macro-F1 over the classes, share of examples with |
    |            | the right class at every position, and the confusion matrix                               |
    | sequence   | character and sequence accuracy of free-running output (`tasks.accuracy`)                 |
    | bleu       | sacreBLEU and chrF of free-running output; needs the extra `metrics`                     |
    | rouge      | ROUGE-1, -2 and -L (F1) of free-running output (`evaluation.rouge`)                       |
    | brackets   | labelled bracket F1, share of valid trees, share of right trees, of free-running output   |
    |            | (`evaluation.brackets`)                                                                  |
    | words      | words exchanged, left out or added in free-running output, per cent of those of the      |
    |            | targets (word error rate), and share of examples without one                             |
    | perplexity | ``exp(-1/n Σ log p)``, accuracy, bits per character, teacher-forced, over n tokens       |
    | last_word  | perplexity and accuracy over the last token of each example alone; unknown words are wrong |
    |            | (known_perplexity: of those whose last token is not unknown; 1 where there is none)       |
    | intensities | ``-1/n Σ log2 p``, teacher-forced, over n pixels                                         |
    | frames     | mean absolute difference of the numbers of each frame, given those of the positions       |
    |            | before, and share of free-running answers that stop before their limit                   |
    | ranking    | share of examples whose text has a higher probability than the same with a wrong form    |
    | actions    | mean return of episodes in which the model acts, that of the expert in the same episodes, |
    |            | and share of examples with the expert's action (`evaluation.returns`)                     |

    The scores of a `baseline` stand next to those of the model, with a warning for
    each test set on which the model is not better. Answers have the limit of length that prediction has, with a warning
    if some reach it. For exact matches they are not generated further than their targets, because a longer one is wrong
    anyway. Steps are counted over real source positions and over generated tokens. The batches change a figure only by
    rounding, and with several beams because a search continues to the longest target of its batch. UserError for an
    unknown split, no examples, or a model that does not fit the task.
    """
    options = options or DecodingOptions()
    check_call(model, task, options=options, batch_tokens=batch_tokens)
    scorer = Scorer(model, task.codec, task.metric, options)
    sets, notes = select_examples(task, examples)
    batch_tokens = most_tokens(model, task, batch_tokens=batch_tokens)
    if task.metric in WRITTEN:
        notes.append(f"free-running output, {options.search_name}")
    sums, trivial = GroupSums(), GroupSums()
    done, total = 0, sum(map(len, sets.values()))
    with evaluating(model):
        for name, found in sets.items():
            sampler = check_batches(model, sizes(found), batch_tokens=max(1, batch_tokens // options.num_beams))
            for indices in sampler.epoch(0):
                chosen = [found[index] for index in indices]
                sums.add(name, chosen, scorer(chosen))
                if baseline is not None:
                    trivial.add(name, chosen, baseline.sums(chosen, metric=task.metric, codec=task.codec))
                done += len(chosen)
                if progress is not None:
                    progress(done, total)
            if name in task.episodes:
                add_returns(name, sums, trivial, scorer=scorer, episodes=task.episodes[name], limit=examples.limit)
    described = "" if baseline is None else baseline.describe(metric=task.metric, codec=task.codec)
    report = dataclasses.replace(summarise(scorer, sums, trivial, task=task, split=examples.split), baseline=described)
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


def most_tokens(model: Model, task: Task, *, batch_tokens: int) -> int:
    """Return `batch_tokens`, or fewer where a batch would have more than `LOGITS` logits."""
    if task.metric in ("perplexity", "last_word", "ranking"):
        return max(1, min(batch_tokens, LOGITS // model.config.vocabulary.size))
    return batch_tokens


def check_call(model: Model, task: Task, *, options: DecodingOptions, batch_tokens: int) -> None:
    """UserError for a model or options that do not fit the task."""
    architecture = model.config.architecture
    if architecture != ARCHITECTURES[task.metric]:
        raise UserError(
            f"task {task.name} is scored by {task.metric}, which needs architecture "
            f'"{ARCHITECTURES[task.metric]}"; this model has "{architecture}"'
        )
    if (model.writes == "frames") != (task.metric == "frames"):
        raise UserError(f"task {task.name} is scored by {task.metric}; this model writes {model.writes}")
    check_packages(task)
    if options.num_beams > 1 and task.metric not in WRITTEN:
        raise UserError(f"beams={options.num_beams}: task {task.name} is scored without writing text; leave it out")
    if options.max_new_tokens is not None and task.metric not in WRITTEN:
        raise UserError(
            f"max_new_tokens={options.max_new_tokens}: task {task.name} is scored without writing text; leave it out"
        )
    if options.sampling.temperature > 0:
        raise UserError(
            f"temperature={options.sampling.temperature:g}: scores are those of greedy or beam search; leave it out"
        )
    options.check(model)
    typed(batch_tokens, AtLeastOne, where="batch_tokens")


def summarise(scorer: Scorer, sums: GroupSums, trivial: GroupSums, *, task: Task, split: str) -> Report:
    """Return the report of the model's sums and of those of the baseline (empty if there is none).

    Groups have their natural order: "task 2" is before "task 10".
    """
    wholes, trivial_wholes = sums.wholes(), trivial.wholes()
    limit = scorer.options.step_limit(scorer.model)
    if limit == MOST_STEPS:  # as many as positions: no row of counts is longer than needed
        limit = max((n for found in wholes.values() for counts in found.steps.values() for n in counts), default=1)
    signatures: dict[str, str] = {}
    scored = partial(scores, metric=task.metric, codec=task.codec, bleu_tokenizer=task.bleu_tokenizer)

    def row(name: str, group: str, found: ScoreSums, answered: ScoreSums | None) -> ScoreRow:
        metrics, how = scored(found)
        signatures.update(how)
        baseline: dict[str, float] = {}
        if answered is not None:
            baseline, _ = scored(answered)
        return ScoreRow(
            name,
            group,
            found.count,
            metrics,
            found.step_counts(limit=limit),
            baseline=baseline,
            unfinished=round(found.sums.get("unfinished", 0)),
        )

    places = {name: place for place, name in enumerate(wholes)}
    ordered = sorted(sums.groups, key=lambda key: (places[key[0]], natural_sort_key(key[1])))
    return Report(
        task=task.name,
        metric=task.metric,
        split=split,
        halting=scorer.model.config.halts or scorer.options.depth.exit is not None,
        max_steps=limit,
        rows=tuple(row(*key, sums.groups[key], trivial.groups.get(key)) for key in ordered),
        totals=tuple(row(name, "", found, trivial_wholes.get(name)) for name, found in wholes.items()),
        steps_by_supports=tuple(
            BySupports(number, steps)
            for number, found in sorted(sums.by_supports.items())
            for steps in found.step_counts(limit=limit)
            if steps.side == "encoder"
        ),
        confusion=tuple(
            Confusion(name, task.codec.render(truth), task.codec.render(given), count)
            for name, found in wholes.items()
            for (truth, given), count in sorted(found.confusion.items())
        ),
        signatures=signatures,
    )


def collapses(report: Report, model: Model, *, max_steps: int | None) -> list[str]:
    """Return a warning for each side whose halting has collapsed. `max_steps` of the calls, or None: as trained."""
    config, found = model.config, []
    for side in get_args(Side):
        decoder, steps = side == "decoder", report.steps(side)
        if steps is not None and config.halts_in(decoder=decoder):
            found.append(collapse(steps, max_steps=max_steps or config.max_steps_of(decoder=decoder)))
    return [text for text in found if text is not None]


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
    elif found := {name: one for name, examples in task.test.items() if (one := _group(examples, split))}:
        sets = dict(found)
    else:
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


def _group(examples: Sequence[Example], name: str) -> list[Example]:
    """Return the examples of a group of a test set."""
    return [example for example in examples if example.group == name]


def natural_sort_key(name: str) -> list[tuple[int, int | str]]:
    """Sort numbers inside names by value."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part]
