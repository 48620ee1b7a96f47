"""Measure how many steps a position takes by what it needs: carries of a sum, length of a sentence.

    python experiments/steps_by_need.py RUN KIND:THRESHOLD

RUN is a run, or a model of the package, that adds numbers (last digit first) or translates. The exit ends the depth of
each position by itself. Adds a table of the first 300 test examples, which are the shortest sums, to
results/steps_by_need.md. Several models have several tables; that of the same model and exit is replaced.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from universal_transformer import load
from universal_transformer.data.example import Example
from universal_transformer.evaluation.inference import InferenceOptions
from universal_transformer.evaluation.pipeline import Pipeline
from universal_transformer.evaluation.prediction import predict
from universal_transformer.nn.config import Exit
from universal_transformer.pretrained_models import find
from universal_transformer.tasks import AlgorithmicData
from universal_transformer.tasks.task import Prediction
from universal_transformer.training.config import RunConfig

RESULTS = Path(__file__).parents[1] / "results" / "steps_by_need.md"
COUNT = 300
FARTHEST = 4
"""Carries from this many places away, or more, are one row."""
LENGTHS = (8, 12, 16, 20, 1000)
"""Most words of a sentence in each row."""
HEAD = """\
# Steps by what needs them

Made by `python experiments/steps_by_need.py RUN KIND:THRESHOLD`. One seed.
"""


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


def of_sums(examples: Sequence[Example], answers: Sequence[Prediction], run: Pipeline) -> Iterator[str]:
    """A row for each distance of a carry: steps of the digit that it enters, and how many of these are right."""
    steps, right = defaultdict(list), defaultdict(list)
    for example, answer in zip(examples, answers, strict=True):
        first, second = "".join(run.codec.words(example)).removesuffix("<end>").split("+")
        assert isinstance(example.target, tuple), "a sum is a sequence of ids"
        wanted = [run.codec.render((index,)) for index in example.target]
        for away, token, digit in zip(carries(first, second), answer.output, wanted, strict=False):
            steps[min(away, FARTHEST)].append(token.steps)
            right[min(away, FARTHEST)].append(token.text == digit)
    yield "| a carry comes from | digits | mean steps | right, % |"
    yield "|---|---|---|---|"
    for away, taken in sorted(steps.items()):
        place = f"{away} place{'s' * (away > 1)} before{' or more' * (away == FARTHEST)}" if away else "nowhere"
        share = 100 * statistics.mean(right[away])
        yield f"| {place} | {len(taken):,} | {statistics.mean(taken):.2f} | {share:.1f} |"


def of_sentences(examples: Sequence[Example], answers: Sequence[Prediction]) -> Iterator[str]:
    """A row for each length: mean steps of the tokens of the sentence and of its translation."""
    read, written = defaultdict(list), defaultdict(list)
    for example, answer in zip(examples, answers, strict=True):
        most = next(length for length in LENGTHS if len(example.source) - 1 <= length)
        read[most] += answer.steps
        written[most] += [token.steps for token in answer.output if token.steps is not None]
    yield "| tokens of the sentence | tokens read | steps, encoder | steps, decoder |"
    yield "|---|---|---|---|"
    for most, taken in sorted(read.items()):
        length = f"at most {most}" if most < LENGTHS[-1] else "more"
        yield f"| {length} | {len(taken):,} | {statistics.mean(taken):.2f} | {statistics.mean(written[most]):.2f} |"


def main(name: str, exit_text: str) -> None:
    run, data = load(name), RunConfig.load(find(name) / "config.json").data
    task = data.load()
    examples = next(iter(task.test.values()))
    sums = isinstance(data, AlgorithmicData)
    examples = list(examples[:COUNT])
    answers = predict(run.model, run.codec, examples, options=InferenceOptions(exit=Exit.parse(exit_text)))
    answers = list(answers)
    rows = of_sums(examples, answers, run) if sums else of_sentences(examples, answers)
    title = f"## {task.name}: {Path(name).name}, {exit_text}, {len(examples)} examples"
    earlier = RESULTS.read_text(encoding="utf-8").split("\n## ")[1:] if RESULTS.exists() else []
    kept = [f"## {part.strip()}" for part in earlier if not f"## {part}".startswith(title)]
    parts = [HEAD, *kept, "\n".join([title, "", *rows])]
    RESULTS.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
