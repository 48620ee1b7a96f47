"""A field of a user's data that is set and changes nothing is refused, or named by `unread`."""

import dataclasses
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from universal_transformer.errors import UserError
from universal_transformer.tasks import LabelledData, PairsData, ParsingData, TaggedData

LIMITS = ("vocabulary_size", "memory_mb")
"""Limits that these files do not reach."""
DRAW = random.Random(0)
WORDS = ["".join(DRAW.choices("abcdefgh", k=4)) for _ in range(30)]


def text():
    return " ".join(DRAW.choices(WORDS, k=3)).capitalize()


FILES = {
    "pairs.tsv": [f"{text()}\t{text()}" for _ in range(60)],
    "labelled.tsv": [f"{text()}\t{DRAW.choice('xyz')}" for _ in range(60)],
    "tagged.conll": [f"{DRAW.choice(WORDS)}\t{DRAW.choice('NV')}" if n % 4 else "" for n in range(240)],
    "trees": [f"(S (N {DRAW.choice(WORDS)}) (V {DRAW.choice(WORDS)}))" for _ in range(60)],
}
CASES = {
    "pairs": (PairsData, "pairs.tsv", {}),
    "two tokenizers": (PairsData, "pairs.tsv", {"target_tokenizer": "word"}),
    "synthetic": (PairsData, "", {"synthetic": "records", "train_pairs": 40, "test_pairs": 5}),
    "labelled": (LabelledData, "labelled.tsv", {}),
    "tagged": (TaggedData, "tagged.conll", {}),
    "trees": (ParsingData, "trees", {}),
}


def content(data):
    """All that is loaded: examples of each part, the notes, and the files of the codec."""
    task = data.load()
    with TemporaryDirectory() as folder:
        task.codec.save(Path(folder))
        saved = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    return [list(task.train), list(task.validation), dict(task.test), task.notes, task.metric, saved]


@pytest.mark.sample(4)
@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_another_value_changes_what_is_loaded_or_is_refused_or_named(tmp_path, name, validated):
    kind, file, given = CASES[name]
    for path, lines in FILES.items():
        (tmp_path / path).write_text("\n".join(lines) + "\n")
    named = str(tmp_path / file) if file else ""
    data = kind(train=named, validation=named if validated else "", **given)
    before, unread = content(data), dict(data.unread())
    for field in dataclasses.fields(data):
        value = getattr(data, field.name)
        if isinstance(value, bool):
            changed = not value
        elif isinstance(value, int):
            changed = value + 1
        elif isinstance(value, float):
            changed = (value + 0.3) / 2
        elif isinstance(value, tuple) and value and isinstance(value[0], int):
            changed = tuple(number + 9 for number in value)
        else:
            continue
        try:
            same = content(dataclasses.replace(data, **{field.name: changed})) == before
        except UserError:
            continue
        assert same == (field.name in {*unread, *LIMITS}), f"{field.name}={changed!r}"
