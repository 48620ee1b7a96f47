"""The card of a pretrained model: what it does, how it was made, what it scores, and where it fails."""

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
    """Fields of the data of the run that have other values in the sample; files are in the folder of the model."""
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


LICENSE = "apache-2.0"
"""Of the weights, as a hub of models names it; that of the package."""
HEADER = f"""\
---
license: {LICENSE}
library_name: universal_transformer
tags: [universal-transformer, adaptive-computation-time]
---

"""
"""What a hub of models reads."""
