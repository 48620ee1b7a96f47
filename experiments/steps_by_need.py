"""Measure how many steps positions take by what needs them: carries, sentences, given cells, supporting facts.

    python experiments/steps_by_need.py RUN KIND:THRESHOLD

RUN is a run, or a model of the package, that adds numbers (last digit first), translates, solves Sudoku or answers the
questions of bAbI or of stories. The exit ends the depth of each position by itself (of a question for all of its
positions). Sums and translations are the first 300 test examples (the shortest sums), the others the whole test. Adds a
line to results/studies/steps_by_need.jsonl, in place of that of the same model and exit, and writes
results/studies/steps_by_need.md.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from study import Study, arguments

from universal_transformer import load
from universal_transformer.data.example import Example
from universal_transformer.decoding.options import DecodingOptions
from universal_transformer.evaluation.measure import evaluate
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.evaluation.prediction import predict
from universal_transformer.evaluation.report import Report
from universal_transformer.pretrained_models import find
from universal_transformer.rules import Exit
from universal_transformer.tasks import AlgorithmicData
from universal_transformer.tasks.sudoku import SudokuData
from universal_transformer.tasks.task import Prediction
from universal_transformer.training.provenance import code_in_use, show_commit
from universal_transformer.training.run_config import RunConfig

COUNT = 300
FARTHEST = 4
"""Carries from this many places away, or more, are one row."""
LENGTHS = (8, 12, 16, 20, 1000)
"""Most words of a sentence in each row."""
HEAD = """\
# Steps by what needs them

Made by `python experiments/steps_by_need.py RUN KIND:THRESHOLD`. One seed of training each."""
EARLIER = "The commit is not known, and the numbers are rounded: they are those of an earlier version of this page."
COLUMNS = {
    "a carry comes from": {"count": "digits", "steps": "mean steps", "right": "right, %"},
    "tokens of the sentence": {"count": "tokens read", "steps": "steps, encoder", "decoder_steps": "steps, decoder"},
    "given cells": {"count": "boards", "steps": "mean steps", "right": "solved, %"},
    "supporting facts": {"count": "positions", "steps": "mean steps"},
}
"""What needs steps -> fields of a row, and their titles in the page."""
FORMS = {"count": ",", "steps": ".2f", "decoder_steps": ".2f", "right": ".1f"}


def carries(first: str, second: str) -> list[int]:
    """Return for each place of a sum, the last digit first, from how many places away a carry comes; 0: none comes.

    The sum has one place more than the longer number where its last carry needs it.

    >>> carries("999", "1")
    [0, 1, 2, 3]
    """
    found, away = [], 0
    for one, other in zip_longest(map(int, first), map(int, second), fillvalue=0):
        found.append(away)
        total = one + other + (away > 0)
        away = 0 if total < 10 else away + 1 if one + other == 9 else 1
    return found + [away] * (away > 0)


def of_sums(examples: Sequence[Example], answers: Sequence[Prediction], run: Pipeline) -> Iterator[dict[str, Any]]:
    """A row for each distance of a carry: steps of the digit that it enters, and how many of these are right."""
    steps, right = defaultdict(list), defaultdict(list)
    for example, answer in zip(examples, answers, strict=True):
        first, second = "".join(run.codec.words(example)).removesuffix("<end>").split("+")
        assert isinstance(example.target, tuple), "a sum is a sequence of ids"
        wanted = [run.codec.render((index,)) for index in example.target]
        for away, token, digit in zip(carries(first, second), answer.output, wanted, strict=False):
            steps[min(away, FARTHEST)].append(token.steps)
            right[min(away, FARTHEST)].append(token.text == digit)
    for away, taken in sorted(steps.items()):
        place = f"{away} place{'s' * (away > 1)} before{' or more' * (away == FARTHEST)}" if away else "nowhere"
        share = 100 * statistics.mean(right[away])
        yield {"need": place, "count": len(taken), "steps": statistics.mean(taken), "right": share}


def of_sentences(examples: Sequence[Example], answers: Sequence[Prediction]) -> Iterator[dict[str, Any]]:
    """A row for each length: mean steps of the tokens of the sentence and of its translation."""
    read, written = defaultdict(list), defaultdict(list)
    for example, answer in zip(examples, answers, strict=True):
        most = next(length for length in LENGTHS if len(example.source) - 1 <= length)
        read[most] += answer.steps
        written[most] += [token.steps for token in answer.output if token.steps is not None]
    for most, taken in sorted(read.items()):
        length = f"at most {most}" if most < LENGTHS[-1] else "more"
        steps, written_steps = statistics.mean(taken), statistics.mean(written[most])
        yield {"need": length, "count": len(taken), "steps": steps, "decoder_steps": written_steps}


def of_boards(report: Report) -> Iterator[dict[str, Any]]:
    """A row for each number of given cells: mean steps of all cells, and the share of boards that are solved."""
    for row in report.rows:
        solved = 100 * row.metrics["sequence_accuracy"]
        given = row.group.removesuffix(" givens")
        yield {"need": given, "count": row.count, "steps": row.steps[0].mean, "right": solved}


def of_questions(report: Report) -> Iterator[dict[str, Any]]:
    """A row for each number of supporting facts: mean steps of the positions of all questions that need so many."""
    for found in report.steps_by_supports:
        steps = found.steps
        yield {"need": str(found.num_supports), "count": steps.num_positions, "steps": steps.mean}


def measure(name: str, chosen: Exit) -> dict[str, Any]:
    """Run the model on test examples with this exit, and return the line of results."""
    run, config = load(name), RunConfig.load(find(name) / "config.json")
    task, options = config.data.load(), DecodingOptions(exit=chosen)
    if task.metric in ("positions", "error"):
        report = evaluate(run.model, task, options=options)
        count = sum(row.count for row in report.totals)
        sudoku = isinstance(config.data, SudokuData)
        need, rows = ("given cells", of_boards(report)) if sudoku else ("supporting facts", of_questions(report))
    else:
        examples = list(next(iter(task.test.values()))[:COUNT])
        answers, count = list(predict(run.model, run.codec, examples, options=options)), len(examples)
        if isinstance(config.data, AlgorithmicData):
            need, rows = "a carry comes from", of_sums(examples, answers, run)
        else:
            need, rows = "tokens of the sentence", of_sentences(examples, answers)
    code = code_in_use()
    return {
        "task": task.name,
        "model": Path(name).name,
        "exit": str(chosen),
        "seed": config.training.seed,
        "config": config.digest(),
        "commit": code.commit,
        "clean": code.clean,
        "count": count,
        "need": need,
        "rows": list(rows),
    }


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    yield HEAD
    for line in lines:
        yield from table(line)


def table(line: dict[str, Any]) -> Iterator[str]:
    """A line of results as Markdown."""
    columns = COLUMNS[line["need"]]
    yield f"\n## {line['task']}: {line['model']}, {line['exit']}, {line['count']:,} examples\n"
    code = show_commit(line["commit"], clean=line["clean"])
    yield f"Seed {line['seed']}. {f'Commit {code}.' if line['commit'] else EARLIER}\n"
    yield f"| {line['need']} | {' | '.join(columns.values())} |"
    yield "|---" * (1 + len(columns)) + "|"
    for row in line["rows"]:
        yield f"| {row['need']} | {' | '.join(format(row[field], FORMS[field]) for field in columns)} |"


STUDY = Study(__file__, key=("task", "model", "exit"), page=page)


if __name__ == "__main__":
    run, chosen = arguments(__doc__, least=2, most=2)
    STUDY.add(measure(run, Exit.parse(chosen)))
