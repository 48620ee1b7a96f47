"""What the data of a run look like: their number, and as tokens lengths, unknown tokens and three examples."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from universal_transformer.data.example import Example, ids_of, spread, target_size
from universal_transformer.tasks.task import Task
from universal_transformer.training.run_config import AnyModelConfig

SAMPLE = 10_000
"""Lengths and unknown tokens are those of so many examples of a part, evenly spread."""
SHOWN = 3
WIDTH = 100
"""Most characters of an example."""


def data_lines(task: Task, model: AnyModelConfig) -> list[str]:
    """Return lines on the number of examples and on targets that a model with this configuration cannot write, and of a
    task whose codec reads text further lines.
    """
    codec, counts = task.codec, {"train": len(task.train), "validation": len(task.validation)}
    # without test files the validation examples are the test set: they are listed once
    counts |= {name: len(examples) for name, examples in task.test.items() if name != "validation"}
    lines = [f"examples    {', '.join(f'{name} {count:,}' for name, count in counts.items())}", *repeated(task)]
    lines += unreachable(task, model)
    if not codec.vocabulary:
        return lines
    sample = spread(task.train, count=SAMPLE)
    lines.append(f"vocabulary  {codec.vocabulary}")
    targets = [one.target if codec.unanswered == () else () for one in sample]
    sides: dict[str, Sequence[Any]] = {"source": [one.source for one in sample], "target": targets}
    for name, lengths in ((name, [len(ids) for ids in side]) for name, side in sides.items()):
        if any(lengths):
            mean = sum(lengths) / len(lengths)
            lines.append(f"lengths     {name}: at most {max(lengths):,} tokens, {mean:.1f} on average")
    # classes, intensities and brackets are never unknown
    is_open = codec.target.unknown_id is not None
    held_out = [
        index
        for one in spread(task.validation, count=SAMPLE)
        for index in (*one.source, *(ids_of(one.target) if is_open else ()))
    ]
    unknown_id = codec.source.unknown_id
    if held_out:
        lines.append(f"unknown     {held_out.count(unknown_id) / len(held_out):.2%} of the validation tokens")
    for example in sample[:SHOWN]:
        text = " → ".join("|".join(side) for side in codec.pieces(example) if side)
        lines.append(f"example     {text if len(text) <= WIDTH else f'{text[: WIDTH - 1]}…'}")
    return lines


def unreachable(task: Task, model: AnyModelConfig) -> list[str]:
    """Return a line on targets to validate and test on that are longer than an answer may be."""
    config = task.configure(model)
    if config.architecture != "encoder_decoder" or config.writes != "tokens" or config.generation.fixed_length:
        return []
    found = []
    for name, examples in ({"validation": task.validation} | dict(task.test)).items():
        targets = [(len(one.source), target_size(one)) for one in examples]
        if long := sum(length > config.answer_limit(source) for source, length in targets):
            found.append(f"{long:,} of {len(targets):,} {name} targets")
    raised = "than an answer may be: raise model.generation.max_new_tokens (of a Neural GPU, model.output_extra)"
    return [f"too long    {', '.join(found)} are longer {raised}"] * bool(found)


def repeated(task: Task) -> list[str]:
    """Return a line on examples to validate and test on that are also trained on, and on those trained on twice.

    Of training examples in memory: others are generated with the held-out ones left out, or too many.
    """
    if not isinstance(task.train, list):
        return []
    known = Counter(map(_content, task.train))
    parts = {"validation": task.validation} | dict(task.test)
    found = []
    for name, examples in parts.items():
        if shared := sum(_content(example) in known for example in examples):
            found.append(f"{shared:,} of {len(examples):,} {name} examples are in train")
    if again := len(task.train) - len(known):
        found.append(f"{again:,} train examples repeat earlier ones")
    return [f"repeated    {', '.join(found)}"] * bool(found)


def _content(example: Example) -> tuple[object, ...]:
    """Source and target, to compare."""
    sides = (example.source, example.target)
    return tuple((side.shape, side.tobytes()) if isinstance(side, np.ndarray) else side for side in sides)
