"""What the paper printed, as data: the figures that ours stand beside.

Dehghani, Gouws, Vinyals, Uszkoreit and Kaiser, "Universal Transformers", ICLR 2019.
"""

from __future__ import annotations

from typing import NamedTuple

FAILED_ABOVE = 5.0
"""Per cent: table 1 calls a task with a larger error failed."""


class Printed(NamedTuple):
    """A cell of table 1: mean error over the 20 tasks in per cent, and how many of them failed."""

    error: float
    failed: int


class Spread(NamedTuple):
    """A mean, and what stands behind its ±."""

    mean: float
    spread: float


TABLE1_SOURCE = "paper, table 1"
TABLE1: dict[str, dict[str, Printed]] = {
    "transformer": {
        "10k-single": Printed(15.2, 10),
        "10k-joint": Printed(22.1, 12),
        "1k-single": Printed(21.8, 5),
        "1k-joint": Printed(26.8, 14),
    },
    "ut": {
        "10k-single": Printed(0.23, 0),
        "10k-joint": Printed(0.47, 0),
        "1k-single": Printed(5.31, 5),
        "1k-joint": Printed(8.50, 8),
    },
    "ut-halting": {
        "10k-single": Printed(0.21, 0),
        "10k-joint": Printed(0.29, 0),
        "1k-single": Printed(4.55, 3),
        "1k-joint": Printed(7.78, 5),
    },
}
"""Model -> column -> the best of ten seeds by validation error."""

TABLE1_TASKS_SOURCE = "paper, appendix (bAbI detailed results)"
TABLE1_TASKS: dict[str, tuple[float, ...]] = {
    "10k-single": (
        *(0.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        *(0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.6, 0.0, 2.8, 0.0),
    ),
    "10k-joint": (
        *(0.0, 0.0, 1.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        *(0.0, 0.0, 0.0, 0.0, 0.0, 1.2, 0.2, 0.0, 3.1, 0.0),
    ),
    "1k-single": (
        *(0.0, 0.0, 3.7, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        *(0.0, 0.0, 0.0, 0.0, 0.0, 5.8, 32.0, 0.0, 47.1, 2.4),
    ),
    "1k-joint": (
        *(0.0, 0.5, 5.4, 0.0, 0.5, 0.5, 3.2, 1.6, 0.2, 0.4),
        *(0.1, 0.0, 0.6, 3.8, 5.9, 15.4, 42.9, 4.1, 68.2, 2.4),
    ),
}
"""Column -> error of tasks 1 to 20 in per cent, Universal Transformer with dynamic halting, best seed."""

TABLE1_SPREAD: dict[str, Spread] = {
    "10k-single": Spread(0.73, 0.89),
    "10k-joint": Spread(1.12, 1.62),
    "1k-single": Spread(6.34, 3.32),
    "1k-joint": Spread(11.21, 6.65),
}
"""Column -> mean error over ten seeds and its spread, from the same appendix, same model."""

PONDER_SOURCE = "paper, section on bAbI"
PONDER: dict[int, Spread] = {1: Spread(2.3, 0.8), 2: Spread(3.1, 1.1), 3: Spread(3.8, 2.2)}
"""Supporting facts a question needs -> ponder time, mean and spread over positions and test data."""

__all__ = [
    "FAILED_ABOVE",
    "PONDER",
    "PONDER_SOURCE",
    "TABLE1",
    "TABLE1_SOURCE",
    "TABLE1_SPREAD",
    "TABLE1_TASKS",
    "TABLE1_TASKS_SOURCE",
    "Printed",
    "Spread",
]
