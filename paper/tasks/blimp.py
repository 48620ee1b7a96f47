"""BLiMP's minimal pairs on subject-verb agreement, for a language model that was trained on another task.

A pair is right if the whole grammatical sentence is likelier than the ungrammatical one:
``Σ_i log p(good_i | good_<i) > Σ_i log p(bad_i | bad_<i)`` (Warstadt et al., TACL 2020, section 4). The end of a
sentence is not scored. A pair whose sentences have the same ids, because the words that differ are not in the
vocabulary, counts as wrong.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from universal_transformer.data.download import find
from universal_transformer.data.example import Example
from universal_transformer.errors import UserError
from universal_transformer.files import parse_json, show, show_path
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.task import Task

SETS = {
    "with distractors": (
        "distractor_agreement_relational_noun",
        "distractor_agreement_relative_clause",
    ),
    "without distractors": (
        "irregular_plural_subject_verb_agreement_1",
        "irregular_plural_subject_verb_agreement_2",
        "regular_plural_subject_verb_agreement_1",
        "regular_plural_subject_verb_agreement_2",
    ),
}
"""Test sets of a report, and their groups: the sets of BLiMP about the agreement of subject and verb."""
ARCHIVE = "BLiMP.zip"
MAX_BYTES = 16 * 2**20
MAX_MEMBERS = 1000


def load_blimp(codec: Codec[Any, Any], *, data_dir: str = "") -> Task:
    """Return the pairs as ids of the codec of a language model; the notes give the share of unknown words."""
    path = find("blimp", data_dir, file=ARCHIVE)
    tests: dict[str, list[Example]] = {}
    padding_id, unknown_id = codec.padding_id, codec.source.unknown_id
    words = unknown = alike = 0
    for name, groups in SETS.items():
        tests[name] = []
        for group in groups:
            for where, good, bad in read_pairs(path, group):
                right, wrong = _target(codec, good, where), _target(codec, bad, where)
                words += len(right)
                unknown += right.count(unknown_id)
                alike += right == wrong
                tests[name].append(Example(source=wrong, target=right, group=group, padding_id=padding_id))
    notes = [f"trained on other text: {unknown / words:.1%} of the words are not in the vocabulary"]
    if alike:
        total = sum(map(len, tests.values()))
        notes.append(f"{alike:,} of {total:,} pairs count as wrong: the words that differ are not in the vocabulary")
    return Task(
        name="blimp",
        codec=codec,
        train=(),
        validation=(),
        test=tests,
        metric="ranking",
        notes=tuple(notes),
    )


def read_pairs(path: Path, group: str) -> Iterator[tuple[str, str, str]]:
    """Yield (place, good sentence, bad sentence) of one set; no other member of the archive is read."""
    name = f"{show_path(path)}: data/{group}.jsonl"
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > MAX_MEMBERS:
                raise UserError(f"{name}: more than {MAX_MEMBERS} members; expected BLiMP's 67 sets")
            member = archive.getinfo(f"data/{group}.jsonl")
            if member.file_size > MAX_BYTES:
                raise UserError(f"{name}: {member.file_size:,} bytes; expected at most {MAX_BYTES:,}")
            with archive.open(member) as stream:
                content = stream.read(MAX_BYTES + 1)
            lines = content.decode("utf-8").rstrip("\n").split("\n")
    except UserError:
        raise
    except KeyError as error:
        raise UserError(f"{name} is not in it; expected the published archive") from error
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError) as error:
        raise UserError(f"{name}: cannot be read ({show(str(error))}); expected the published archive") from error
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        match parse_json(line, where=where):
            case {"sentence_good": str(good), "sentence_bad": str(bad)} if good.strip() and bad.strip():
                yield where, good, bad
            case other:
                found = show(json.dumps(other))
                raise UserError(f'{where}: found {found}; expected "sentence_good" and "sentence_bad"')


def _target(codec: Codec[Any, Any], sentence: str, where: str) -> tuple[int, ...]:
    (example,) = codec.read([(1, sentence)], name=where)
    if example.source or not isinstance(example.target, tuple) or not example.target:
        raise UserError("BLiMP compares sentences by their probability: it needs the run of a language model")
    return example.target
