"""A report, a story and the metrics of a run, made by hand: what figures and pages are drawn from."""

import numpy as np

from universal_transformer.evaluation.report import BySupports, Report, ScoreRow, StepCounts
from universal_transformer.explore.story import Story

FACTS = ("boris went to the attic", "boris took the lamp", "amina ran to the garage", "where is the lamp")


def story(**changes):
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 2, 4)).astype(np.float32)
    fields = {
        "labels": FACTS,
        "steps": (2.0, 3.0, 1.0, 3.0),
        "max_steps": 4,
        "halting": True,
        "facts": True,
        "supports": (0, 1),
        "answer": "attic",
        "output": "attic",
        "probability": 0.93,
        "attention": weights,
    }
    return Story(**{**fields, **changes})


def report(groups=3, *, metrics=("error",), sides=("encoder",), halting=True, task="stories"):
    def steps(n):
        return tuple(StepCounts(side, (5, 10 + n, 3, 0)) for side in sides)

    rows = tuple(
        ScoreRow("test", f"task {n + 1}", 100, dict.fromkeys(metrics, 3.0 * n), steps(n)) for n in range(groups)
    )
    whole = ScoreRow("test", "", 300, dict.fromkeys(metrics, 3.0), steps(9))
    return Report(
        task=task,
        metric="error" if metrics == ("error",) else "sequence",
        split="test",
        halting=halting,
        max_steps=4,
        rows=rows,
        totals=(whole,),
        steps_by_supports=tuple(BySupports(n, steps(n)[0]) for n in (1, 2, 3)),
    )


METRICS = [
    {"event": "start", "update": 0, "seconds": 0.0},
    *({"event": "update", "update": n, "seconds": n / 9, "loss": 2 / n, "mean_steps": n / 5} for n in range(1, 9)),
    *({"event": "validation", "update": n, "seconds": n / 9, "error": 1 / n, "cross_entropy": 1 / n} for n in (4, 8)),
    {"event": "validation", "update": 8, "seconds": 1.0, "error": 0.1, "weights": "average"},
    {"event": "end", "update": 8, "seconds": 1.0, "stopped": "minutes"},
]
