"""The card of a pretrained model: what it does, how it was made, what it scores, and where it fails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from universal_transformer.files import read_json, show_path
from universal_transformer.manifest import FileEntry
from universal_transformer.pretrained_models import CARD
from universal_transformer.typed import typed

MOST_DIFFERENT = 1e-3
"""Share by which a figure can differ from the card: rounding on another machine changes no answer of a sample."""

Stored = Literal["float32", "float16"]
Figures = dict[str, dict[str, float]]
"""Group of the test set -> its scores, "count" (its examples) and "mean_steps"."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A part of the test that takes seconds, and what the model scores on it."""

    data: dict[str, Any]
    """Fields of the data of the run that have other values in the sample."""
    limit: int | None
    """Examples of each test set, evenly spread. None: all."""
    figures: Figures
    """Scores of the sample by group."""


@dataclass(frozen=True, kw_only=True)
class TrainingCode:
    """The code that a model was trained with (`training.provenance.Code`)."""

    commit: str | None
    """None: unknown."""
    clean: bool | None
    """Whether the files of the package were as in that commit."""
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run that a pretrained model was copied from. The card keeps it when the run is gone."""

    command: str
    """The command that trains it."""
    seed: int
    updates: int
    changes: list[str]
    """Settings that were changed when training was continued."""
    code: list[TrainingCode]
    """Of the start and, where they had other code, of the continuations, as far as they are known."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """Everything that a user must know of a pretrained model."""

    name: str
    summary: str
    """What it does, in one sentence."""
    usage: str
    """What it takes and what it answers."""
    example: tuple[str, str]
    """An input, and the answer of the model."""
    figures: Figures
    """Scores on the whole test by group."""
    notes: list[str]
    """What belongs to the figures."""
    sample: Sample
    failures: list[str]
    """Inputs on which it is known to be wrong."""
    data: str
    """What it was trained on."""
    licence: str
    """Licence of the weights, and of the data."""
    origin: Origin
    sequence: str
    """Which commands come before that of `origin`; empty: none."""
    recorded: str
    """Which runs of the command are recorded, and where; empty: none."""
    parameters: int
    stored: Stored
    """Numbers in the file of weights. The model computes in float32 in any case."""
    files: dict[str, FileEntry]
    """Size and SHA-256 of each file in ``model/``."""

    @property
    def size(self) -> int:
        return sum(entry.bytes for entry in self.files.values())


def read_card(folder: Path) -> Card:
    """Return the card of the pretrained model in `folder`; UserError for a card that this version does not write."""
    path = folder / CARD
    card: Card = typed(read_json(path), Card, where=show_path(path))
    return card


def differences(found: Figures, card: Figures) -> list[str]:
    """Return a line for each figure of a model that is not the one on its card."""
    lines = [f"{group}: on one of the two only" for group in sorted(found.keys() ^ card.keys())]
    for group in found.keys() & card.keys():
        ours, theirs = found[group], card[group]
        for name in sorted(ours.keys() | theirs.keys()):
            one, other = ours.get(name, math.nan), theirs.get(name, math.nan)
            if not math.isclose(one, other, rel_tol=MOST_DIFFERENT):
                lines.append(f"{group}: {name} is {one:g}, the card says {other:g}")
    return lines


HEADER = """\
---
license: apache-2.0
library_name: universal_transformer
tags: [universal-transformer, adaptive-computation-time]
---

"""
"""What a hub of models reads; the licence of the weights is that of the package."""


def page(card: Card) -> str:
    origin = card.origin
    lines = [
        f"# {card.name}",
        "",
        card.summary,
        "",
        card.usage,
        "",
        *_example(*card.example),
        "",
        "## Results",
        "",
        *_figures(card.figures),
        "",
        *([*(f"- {note}" for note in card.notes), ""] if card.notes else []),
        "## Known failures",
        "",
        *(f"- {failure}" for failure in card.failures),
        "",
        "## Training",
        "",
        f"- Command: `{origin.command}`",
        *([f"- {card.sequence}"] if card.sequence else []),
        f"- Seed {origin.seed}; {origin.updates:,} updates; {card.parameters:,} parameters, stored as {card.stored}",
        *(f"- {change}" for change in origin.changes),
        *([f"- {card.recorded}"] if card.recorded else []),
        *(f"- {'Continued' if place else 'Trained'} with {_code(code)}" for place, code in enumerate(origin.code)),
        f"- Data: {card.data}",
        f"- Licence: {card.licence}",
        "",
        "## Files",
        "",
        *_table(
            ["file", "bytes", "SHA-256"],
            [[name, f"{entry.bytes:,}", entry.sha256] for name, entry in card.files.items()],
        ),
    ]
    return HEADER + "\n".join(lines) + "\n"


def _code(code: TrainingCode) -> str:
    changes = " with changes" if code.clean is False else ""
    versions = ", ".join(f"{name} {version}" for name, version in code.versions.items())
    return f"commit {code.commit or 'unknown'}{changes}; {versions}"


def _example(given: str, answer: str) -> list[str]:
    answer = answer.replace("\n", " ")
    if "\n" not in given:
        return [f"Example: `{given}` gives `{answer}`."]
    return ["Example, one fact a line:", "", "```text", given, "```", "", f"The answer is `{answer}`."]


def _figures(figures: Figures) -> list[str]:
    scores = list(dict.fromkeys(name for found in figures.values() for name in found if name != "count"))
    rows = [
        [
            group or "all",
            f"{found['count']:.0f}",
            *(f"{found[score]:.4g}" if score in found else "" for score in scores),
        ]
        for group, found in figures.items()
    ]
    return _table(["test", "examples", *(score.replace("_", " ") for score in scores)], rows)


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
