"""The handwritten digits of the data set ``mnist10k``: 10,000 pictures of 28 × 28 pixels in three parts.

The parts are a permutation of all digits, in the order of the files: 8,000 to train, 1,000 to validate, 1,000 to test.
They are a sample of MNIST and not its test set, so that no figure compares with published ones.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.download import LocalDataset
from universal_transformer.errors import UserError

NAME = "mnist10k"
SIDE = 28
PARTS = {"train": (0, 8), "validation": (8, 9), "test": (9, 10)}
"""Where a part begins and ends, in tenths of all pictures."""


@dataclass(frozen=True)
class Handwriting:
    """Pictures of digits, one part of the data set."""

    pictures: NDArray[np.uint8]
    """Intensities [picture, row, column]."""
    digits: NDArray[np.int64]
    """What each picture shows."""

    def __len__(self) -> int:
        return len(self.digits)


def load_handwriting(data_dir: str | Path = "") -> dict[str, Handwriting]:
    """Return the parts "train", "validation" and "test"; UserError for missing or damaged files."""
    return _load(LocalDataset(NAME, data_dir or None).root)


def block_means(pictures: NDArray[np.uint8], *, side: int) -> NDArray[np.uint8]:
    """Return square pictures [picture, row, column] of a smaller side: rounded means of blocks of pixels.

    `side` divides that of the pictures. A mean that ends in one half is rounded up.
    """
    block = pictures.shape[1] // side
    blocks = pictures.reshape(len(pictures), side, block, side, block).astype(np.int64).sum(axis=(2, 4))
    return ((2 * blocks + block**2) // (2 * block**2)).astype(np.uint8)


@lru_cache(maxsize=1)
def _load(folder: Path) -> dict[str, Handwriting]:
    files = LocalDataset(NAME, folder.parent)
    found = [_pictures(*files[f"digits/{digit}.json"]) for digit in range(10)]
    pictures = np.concatenate(found)
    digits = np.repeat(np.arange(10), [len(one) for one in found])
    order = np.random.default_rng(0).permutation(len(digits))
    chosen = {name: order[len(order) * first // 10 : len(order) * last // 10] for name, (first, last) in PARTS.items()}
    return {name: Handwriting(pictures[places], digits[places]) for name, places in chosen.items()}


def _pictures(where: str, content: bytes) -> NDArray[np.uint8]:
    """Return the pictures of one digit: 784 numbers from 0 to 1 each, which are multiples of 1/255, rounded."""
    try:
        fields: Any = json.loads(content)
        numbers = np.array(fields["data"], dtype=np.float64)
        pictures = numbers.reshape(-1, SIDE, SIDE)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f'{where}: found no pictures; expected {{"data": [784 numbers a picture]}}') from error
    if not bool(((pictures >= 0) & (pictures <= 1)).all()):
        raise UserError(f"{where}: found an intensity outside of 0 to 1; run ut data check {NAME}")
    return np.rint(255 * pictures).astype(np.uint8)
