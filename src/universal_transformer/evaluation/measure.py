"""A model and a task give a report: free-running scores, and how many steps positions took to get there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from universal_transformer.data.example import Example, sizes, spread
from universal_transformer.data.text import show
from universal_transformer.decoding.generation import evaluating
from universal_transformer.errors import UserError
from universal_transformer.evaluation.report import BySupports, Report, Row, collapse
from universal_transformer.evaluation.room import check_batch_tokens, check_batches
from universal_transformer.evaluation.scoring import Decoding, Depth, Outcome, Scorer, load_sacrebleu
from universal_transformer.models.build import Model
from universal_transformer.tasks.task import Task

Progress = Callable[[int, int], object]
"""Called with the examples done and all examples."""

ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {
        "error": "classifier",
        "accuracy": "classifier",
        "sequence": "encoder_decoder",
        "bleu": "encoder_decoder",
        "perplexity": "language_model",
        "last_word": "language_model",
        "ranking": "language_model",
    }
)
"""Which architecture a metric can score."""

LOGITS = 2**27
"""Most logits of a batch: half a gigabyte."""


def evaluate(
    model: Model,
    task: Task,
    *,
    split: str = "test",
    batch_tokens: int = 16384,
    max_steps: int | None = None,
    halting_threshold: float | None = None,
    limit: int | None = None,
    beams: int = 1,
    alpha: float = 0.6,
    progress: Progress | None = None,
) -> Report:
    """Score `model` on a split of `task`.

    | metric     | score                                                                                    |
    | ---------- | ---------------------------------------------------------------------------------------- |
    | error      | per cent of examples whose class the largest logit does not name                         |
    | accuracy   | share of examples whose class the largest logit names                                    |
    | sequence   | character and sequence accuracy of free-running output (`tasks.scoring`)                 |
    | bleu       | sacreBLEU and chrF of free-running output; needs the extra `metrics`                     |
    | perplexity | ``exp(-1/n Σ log p)``, accuracy, bits per character, teacher-forced, over n tokens       |
    | last_word  | perplexity and accuracy over the last token of each example alone; unknown words are wrong |
    |            | (known_perplexity: of those whose last token is not unknown; 1 where there is none)       |
    | ranking    | share of examples whose text has a higher probability than the same with a wrong form    |

    `split` is "test" (all test sets), "validation", "train", or the name of one test set; `limit` scores so many
    examples of each set, evenly spread. `beams` and `alpha` (length penalty) decide how output is searched for: one
    beam is greedy. Sequences are written to the length of their targets: what is longer is wrong already. Steps are
    counted over real positions, and over what was written. Batches change no figure but by rounding (and with beams: a
    search goes on to the longest target of its batch). UserError for an unknown split, no examples, an unfit model.
    """
    _check(model, task, beams=beams, batch_tokens=batch_tokens)
    depth = Depth(max_steps=max_steps, halting_threshold=halting_threshold)
    depth.check(model)
    scorer = Scorer(model, task.codec, task.metric, depth, Decoding(beams=beams, alpha=alpha))
    sets, notes = choose(task, split=split, limit=limit)
    batch_tokens = min(batch_tokens, _room(model))
    if task.metric in ("sequence", "bleu"):
        notes.append(f"free-running output, {scorer.decoding.name}")
    tallies: dict[tuple[str, str], Outcome] = {}
    by_supports: dict[int, Outcome] = {}
    done, total = 0, sum(map(len, sets.values()))
    with evaluating(model):
        for name, examples in sets.items():
            sampler = check_batches(model, sizes(examples), batch_tokens=max(1, batch_tokens // beams))
            for indices in sampler.epoch(0):
                chosen = [examples[index] for index in indices]
                for example, outcome in zip(chosen, scorer(chosen), strict=True):
                    tallies.setdefault((name, example.group), Outcome(count=0)).add(outcome)
                    if example.supports:
                        by_supports.setdefault(len(example.supports), Outcome(count=0)).add(outcome)
                done += len(chosen)
                if progress is not None:
                    progress(done, total)
    report = summarise(scorer, tallies, by_supports, task=task, split=split)
    # a cap below the trained one makes all positions stop there, which says nothing about the halting unit
    watched = model.config.halting and depth.cap(model) >= model.config.max_steps
    warnings = tuple(collapses(report)) if watched else ()
    return dataclasses.replace(report, notes=(*task.notes, *notes, *depth.notes(model)), warnings=warnings)


def _check(model: Model, task: Task, *, beams: int, batch_tokens: int) -> None:
    """Refuse, before the work, what `evaluate` cannot do."""
    architecture = model.config.architecture
    if architecture != ARCHITECTURES[task.metric]:
        raise UserError(
            f"task {task.name} is scored by {task.metric}, which needs architecture "
            f'"{ARCHITECTURES[task.metric]}"; this model has "{architecture}"'
        )
    if task.metric == "bleu":
        load_sacrebleu()
    if beams < 1:
        raise UserError(f"beams={beams}: expected at least 1 (1: greedy)")
    if beams > 1 and task.metric not in ("sequence", "bleu"):
        raise UserError(f"beams={beams}: task {task.name} is scored without writing text; leave it out")
    check_batch_tokens(batch_tokens)


def _room(model: Model) -> int:
    """Positions whose logits over a language model's vocabulary fit into `LOGITS` numbers."""
    vocabulary = model.config.vocabulary_size if model.config.architecture == "language_model" else 1
    return max(1, LOGITS // max(1, vocabulary))


def summarise(
    scorer: Scorer,
    tallies: Mapping[tuple[str, str], Outcome],
    by_supports: Mapping[int, Outcome],
    *,
    task: Task,
    split: str,
) -> Report:
    """Make a report of what was found, groups in natural order ("task 2" before "task 10")."""
    cap = scorer.depth.cap(scorer.model)
    signatures: dict[str, str] = {}
    wholes: dict[str, Outcome] = {}
    for (name, _), outcome in tallies.items():
        wholes.setdefault(name, Outcome(count=0)).add(outcome)

    def row(name: str, group: str, outcome: Outcome) -> Row:
        metrics, found = scorer.metrics(outcome)
        signatures.update(found)
        return Row(name, group, outcome.count, metrics, outcome.step_counts(cap=cap))

    places = {name: place for place, name in enumerate(wholes)}
    ordered = sorted(tallies, key=lambda key: (places[key[0]], natural(key[1])))
    return Report(
        task=task.name,
        metric=task.metric,
        split=split,
        halting=scorer.model.config.halting,
        max_steps=cap,
        rows=tuple(row(name, group, tallies[name, group]) for name, group in ordered),
        totals=tuple(row(name, "", outcome) for name, outcome in wholes.items()),
        steps_by_supports=tuple(
            BySupports(number, steps)
            for number, outcome in sorted(by_supports.items())
            for steps in outcome.step_counts(cap=cap)
            if steps.side == "encoder"
        ),
        signatures=signatures,
    )


def collapses(report: Report) -> list[str]:
    """Return a warning for each side whose halting has collapsed."""
    sides = [steps for side in ("encoder", "decoder") if (steps := report.steps(side)) is not None]
    found = [collapse(steps, max_steps=report.max_steps) for steps in sides]
    return [text for text in found if text is not None]


def choose(task: Task, *, split: str, limit: int | None) -> tuple[dict[str, Sequence[Example]], list[str]]:
    """Return the sets to score by name, and what a figure must say about them."""
    sets: dict[str, Sequence[Example]]
    if split == "test":
        sets = dict(task.test)
    elif split in ("validation", "train"):
        sets = {split: task.validation if split == "validation" else task.train}
    elif split in task.test:
        sets = {split: task.test[split]}
    else:
        allowed = ", ".join(dict.fromkeys(("test", "validation", "train", *task.test)))
        raise UserError(f"split {show(split)}: allowed for task {task.name} are {allowed}")
    if limit is not None and limit < 1:
        raise UserError(f"limit {limit}: expected at least 1 example, or none for all")
    notes = []
    for name, examples in sets.items():
        if not len(examples):
            raise UserError(f"task {task.name}: no examples in {name}; expected at least one to score")
        if limit is not None and len(examples) > limit:
            notes.append(f"{name}: {limit:,} of {len(examples):,} examples, evenly spread")
            sets[name] = spread(examples, count=limit)
    return sets, notes


def natural(name: str) -> list[tuple[int, int | str]]:
    """Sort numbers inside names by value."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]
