"""What the paper printed, as data: the figures that ours are compared with.

Dehghani, Gouws, Vinyals, Uszkoreit and Kaiser, "Universal Transformers", ICLR 2019. Where version 1 (arXiv
1807.03819v1, July 2018) prints another figure, its rows end with ``-v1``; it calls dynamic halting "Adaptive
Universal Transformer".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

Cell = tuple[int | float, ...] | str | None
"""The figures of a cell in the order of the column's scores, or as text; None where the paper has none."""

TABLE1_SOURCE = "paper, table 1"
TABLE1: dict[str, tuple[Cell, ...]] = {
    "qrnet": ((0.3, 0), None, None, None),
    "sparse-dnc": (None, (2.9, 1), None, None),
    "ga-mage": (None, None, (8.7, 5), None),
    "memn2n": (None, None, None, (12.4, 11)),
    "transformer": ((15.2, 10), (22.1, 12), (21.8, 5), (26.8, 14)),
    "ut": ((0.23, 0), (0.47, 0), (5.31, 5), (8.50, 8)),
    "ut-halting": ((0.21, 0), (0.29, 0), (4.55, 3), (7.78, 5)),
    "ut-halting-v1": ((0.21, 0), (0.29, 0), (4.56, 3), (7.85, 5)),
    "seeds": ("0.73 ± 0.89", "1.12 ± 1.62", "6.34 ± 3.32", "11.21 ± 6.65"),
    "seeds-v1": ("0.73 ± 0.89", "1.12 ± 1.62", "6.39 ± 3.22", "11.21 ± 6.62"),
}
"""Model -> mean error over 20 tasks in per cent and failed tasks: 10K single, 10K joint, 1K single, 1K joint.

The first four are earlier work, as the paper prints it.
The best of ten seeds by validation error; "seeds": mean and variance over ten seeds, of dynamic halting (appendix C).
"""

TABLE1_TASKS_SOURCE = "paper, appendix C"
TABLE1_TASKS: dict[str, tuple[int | float, ...]] = {
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

TABLE1_TASKS_OVER_SEEDS = {
    column: tuple(cells.split(", "))
    for column, cells in {
        "10k-single": "0.0 ± 0.0, 0.2 ± 0.4, 1.8 ± 1.8, 0.1 ± 0.1, 0.2 ± 0.3, 0.1 ± 0.2, 0.3 ± 0.5, "
        "0.3 ± 0.2, 0.0 ± 0.0, 0.1 ± 0.2, 0.0 ± 0.0, 0.2 ± 0.1, 0.2 ± 0.5, 1.8 ± 2.6, "
        "2.1 ± 3.4, 1.9 ± 2.2, 1.6 ± 0.8, 0.3 ± 0.4, 3.4 ± 4.0, 0.0 ± 0.0",
        "10k-joint": "0.0 ± 0.0, 1.7 ± 2.6, 4.6 ± 7.3, 0.2 ± 0.1, 0.8 ± 0.5, 0.1 ± 0.2, 1.1 ± 1.5, "
        "0.5 ± 1.1, 0.0 ± 0.0, 0.5 ± 0.4, 0.1 ± 0.1, 0.4 ± 0.4, 0.3 ± 0.4, 1.3 ± 1.6, "
        "1.6 ± 2.8, 0.9 ± 1.3, 1.4 ± 3.4, 0.7 ± 1.4, 6.1 ± 7.3, 0.0 ± 0.0",
        "1k-single": "0.2 ± 0.3, 3.2 ± 4.1, 9.1 ± 12.7, 0.3 ± 0.3, 1.1 ± 1.3, 1.2 ± 2.1, 0.0 ± 0.0, "
        "0.1 ± 0.2, 0.1 ± 0.1, 0.7 ± 0.8, 0.4 ± 0.8, 0.6 ± 0.9, 0.8 ± 0.9, 0.1 ± 0.2, "
        "0.3 ± 0.5, 9.1 ± 8.1, 43.7 ± 18.6, 2.3 ± 3.6, 50.2 ± 8.4, 3.2 ± 2.5",
        "1k-joint": "0.1 ± 0.2, 4.3 ± 11.6, 14.3 ± 18.1, 0.4 ± 0.6, 4.3 ± 5.6, 0.8 ± 0.4, 4.1 ± 2.9, "
        "3.9 ± 4.2, 0.3 ± 0.3, 1.3 ± 1.6, 0.3 ± 0.9, 0.3 ± 0.4, 1.1 ± 0.9, 4.7 ± 5.2, "
        "10.3 ± 8.6, 34.1 ± 22.8, 51.1 ± 12.9, 12.8 ± 9.0, 73.1 ± 23.9, 2.6 ± 2.8",
    }.items()
}
"""The same of dynamic halting as mean ± variance over ten seeds."""

_Task = TypeVar("_Task")


def _in_version_1(
    rows: Mapping[str, Sequence[_Task]], changes: Mapping[str, Mapping[int, _Task]]
) -> dict[str, tuple[_Task, ...]]:
    """The rows of version 1 (its appendix B): those of the ICLR version, with other cells for some tasks."""
    return {
        f"{column}-v1": tuple(changed.get(task, cell) for task, cell in enumerate(rows[column], start=1))
        for column, changed in changes.items()
    }


TABLE1_TASKS |= _in_version_1(TABLE1_TASKS, {"1k-single": {17: 32.1, 19: 47.2}, "1k-joint": {17: 43.2, 19: 69.11}})
TABLE1_TASKS_OVER_SEEDS |= _in_version_1(
    TABLE1_TASKS_OVER_SEEDS, {"1k-single": {17: "44.7 ± 16.6"}, "1k-joint": {17: "51.1 ± 12.3"}}
)

PONDER_SOURCE = "paper, section on bAbI"
PONDER: tuple[Cell, ...] = ("2.3 ± 0.8", "3.1 ± 1.1", "3.8 ± 2.2")
"""Ponder time of tasks that need 1, 2 and 3 supporting facts: mean and spread over positions and test data."""

TABLE2: dict[str, tuple[Cell, ...]] = {
    "stack-rnn": ((0.994,), (0.979,), (0.965,), (0.935,), (0.916,), (0.880,), (0.992,)),
    "lstm": ((0.993,), (0.972,), (0.950,), (0.922,), (0.900,), (0.842,), (0.991,)),
    "attention": ((0.994,), (0.977,), (0.959,), (0.929,), (0.907,), (0.842,), (0.992,)),
    "transformer": ((0.973,), (0.941,), (0.932,), (0.917,), (0.901,), (0.883,), (0.962,)),
    "ut": ((0.993,), (0.971,), (0.969,), (0.940,), (0.921,), (0.892,), (0.992,)),
    "ut-halting": ((0.994,), (0.969,), (0.967,), (0.944,), (0.932,), (0.907,), (0.992,)),
    "difference": ((0.0,), (-0.008,), (0.002,), (0.009,), (0.016,), (0.027,), None),
    "stack-rnn-v1": ((0.994,), (0.979,), (0.965,), (0.935,), (0.916,), (0.880,), (0.9923,)),
    "lstm-v1": ((0.993,), (0.972,), (0.950,), (0.922,), (0.900,), (0.842,), (0.9911,)),
    "attention-v1": ((0.994,), (0.977,), (0.959,), (0.929,), (0.907,), (0.842,), (0.9918,)),
    "transformer-v1": ((0.9733,), (0.9412,), (0.9316,), (0.9167,), (0.9014,), (0.8834,), (0.9616,)),
    "ut-v1": ((0.9934,), (0.9712,), (0.9690,), (0.9400,), (0.9206,), (0.8915,), (0.9917,)),
    "adaptive-small-v1": ((0.9932,), (0.9801,), (0.9714,), (0.9608,), (0.9521,), (0.9314,), (0.9920,)),
    "adaptive-base-v1": ((0.9943,), (0.9720,), (0.9516,), (0.9567,), (0.9314,), (0.9034,), (0.9924,)),
}
"""Model -> accuracy with 0, 1, 2, 3, 4 and 5 attractors, and in all.

``difference``: dynamic halting minus the best model of earlier work, as printed.
"""

TABLE3_LM: dict[str, tuple[Cell, ...]] = {
    "neural-cache": ((129.0,), (139.0,), None),
    "transformer": ((142.0, 0.19), (5122.0, 0.0), (7321.0, 0.0)),
    "lstm": ((138.0, 0.23), (4966.0, 0.0), (5174.0, 0.0)),
    "ut": ((131.0, 0.32), (279.0, 0.18), (319.0, 0.17)),
    "ut-halting": ((130.0, 0.32), (134.0, 0.22), (142.0, 0.19)),
    "ut-8": ((129.0, 0.32), (192.0, 0.21), (202.0, 0.18)),
    "ut-9": ((129.0, 0.33), (214.0, 0.21), (239.0, 0.17)),
    "transformer-v1": ((154.0, 0.14), (5336.0, 0.0), (9725.0, 0.0)),
    "ut-halting-v1": ((130.0, 0.32), (135.0, 0.22), (142.0, 0.19)),
}
"""Model -> perplexity and accuracy on the control, development and test sets."""
LAMBADA_STEPS = "8.2 ± 2.1"
"""Steps of the best model with dynamic halting, over all positions and examples of the test."""
TABLE3_RC: dict[str, tuple[Cell, ...]] = {
    "dhingra": (None, None, (0.5569,)),
    "transformer": ((0.4102,), (0.4401,), (0.3988,)),
    "lstm": ((0.1103,), (0.2316,), (0.2007,)),
    "ut": ((0.4801,), (0.5422,), (0.5216,)),
    "ut-halting": ((0.4603,), (0.5831,), (0.5625,)),
}
"""Model -> accuracy when the answer is chosen among the words of the passage: control, development, test."""

TABLE4: dict[str, tuple[Cell, ...]] = {
    "lstm": ((0.45, 0.09), (0.66, 0.11), (0.08, 0.0)),
    "transformer": ((0.53, 0.03), (0.13, 0.06), (0.07, 0.0)),
    "ut": ((0.91, 0.35), (0.96, 0.46), (0.34, 0.02)),
    "neural-gpu": ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
}
"""Model -> character and sequence accuracy of copy, reverse and addition; the Neural GPU had a curriculum."""

TABLE5: dict[str, tuple[Cell, ...]] = {
    "lstm": ((0.78, 0.11), (0.51, 0.047), (0.91, 0.32)),
    "transformer": ((0.98, 0.63), (0.94, 0.55), (0.81, 0.26)),
    "ut": ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
}
"""Model -> character and sequence accuracy of copying, doubling and reversing numbers."""
TABLE6: dict[str, tuple[Cell, ...]] = {
    "lstm": ((0.53, 0.12), (0.68, 0.21), (0.83, 0.11)),
    "transformer": ((0.71, 0.29), (0.93, 0.66), (1.0, 1.0)),
    "ut": ((0.89, 0.63), (1.0, 1.0), (1.0, 1.0)),
}
"""Model -> character and sequence accuracy of evaluating programs, control flow and additions."""

TABLE7: dict[str, tuple[Cell, ...]] = {
    "ut-small": ((26.8,),),
    "transformer-small": ((28.0,),),
    "weighted-transformer": ((28.4,),),
    "ut": ((28.9,),),
}
"""Model -> BLEU on newstest 2014, English to German. All base models have as many parameters."""
