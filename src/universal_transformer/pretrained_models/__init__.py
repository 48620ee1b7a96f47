"""Pretrained models: small trained models that are part of the package, each in a folder with its card.

======================== ==========================================================
file                     what it holds
======================== ==========================================================
``card.json``            what the model is, and its figures (`card.Card`)
``card.md``              the same, to read
``config.json``          configuration of its run
``calibration.json``     the depth that it takes, if it was calibrated
``model/``               weights, codec, and a manifest with the SHA-256 of each
``sample.txt``           text for the sample of a language model on other text
======================== ==========================================================

``tools/add_pretrained.py`` makes such a folder from a run.
"""

import os
from pathlib import Path

from universal_transformer.errors import suggestion

FOLDER = Path(__file__).parent
CARD, PAGE = "card.json", "card.md"
PARTS = ("config.json", "model.safetensors", "model")
"""A folder with one of these holds a run or a model."""


def names() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def find(run: str | Path) -> Path:
    """Return the folder of the pretrained model with the name `run`. Any other name is returned as a path.

    A folder of this name that holds a run or a model comes first.
    """
    path = Path(run)
    is_run = any(os.path.lexists(path / part) for part in PARTS)
    return FOLDER / path if str(path) in names() and not is_run else path


def is_pretrained(folder: Path) -> bool:
    return folder.parent == FOLDER


def known(run: str | Path) -> str:
    """Return the end of a message for a `run` that is not there: the names that there are, unless it is a path."""
    return (
        ""
        if Path(run).name != str(run)
        else f"; pretrained models: {', '.join(names())}{suggestion(str(run), names())}"
    )
