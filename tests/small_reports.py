"""A report, a story and the metrics of a run, made by hand: what figures and pages are drawn from."""

import base64
import dataclasses

import numpy as np

from universal_transformer.evaluation.report import BySupports, Report, ScoreRow, StepCounts
from universal_transformer.explore.input_trace import AttentionBytes, InputTrace, SideTrace
from universal_transformer.explore.story import Examined
from universal_transformer.explore.story_figures import attention_maps, ponder_map

FACTS = ("boris went to the attic", "boris took the lamp", "amina ran to the garage", "where is the lamp")


def story(**changes):
    """A trace of a story; of the side ``labels``, ``steps``, ``supports``, ``weights`` and ``blocks``."""
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 2, 4))
    fields = {"labels": FACTS, "steps": (2.0, 3.0, 1.0, 3.0), "supports": (0, 1), "weights": weights, "blocks": 1}
    of_side = {name: changes.pop(name, value) for name, value in fields.items()}
    written = np.rint(255 * of_side["weights"]).astype(np.uint8)
    attention = AttentionBytes(
        data=base64.b64encode(written.tobytes()).decode(), shape=written.shape, blocks=of_side["blocks"]
    )
    side = SideTrace(
        side="encoder",
        tokens=of_side["labels"],
        columns=of_side["labels"],
        steps=of_side["steps"],
        remainders=(0.5,) * len(of_side["steps"]),
        halting=None,
        self_attention=attention,
        supports=of_side["supports"],
    )
    trace = InputTrace(
        model="tiny",
        view={"form": "facts"},
        max_steps=4,
        halting=True,
        threshold=0.99,
        sides=(side,),
        answer="attic",
        probability=0.93,
        finished=True,
        right="attic",
        choices=(("attic", 0.93),),
        output=(),
        places=(),
        after_steps=[],
        unknown=(),
        cut=(),
    )
    return dataclasses.replace(trace, **changes)


def examined(trace, *, title="One story", text="where is the lamp?"):
    """An example whose trace a page draws."""
    maps = {"ponder_map": ponder_map(trace)} if trace.halting else {}
    figures = maps | {"attention": attention_maps(trace)}
    return Examined(title=title, text=text, trace=trace, figures=figures, pictured=False)


def report(groups=3, *, metrics=("error",), sides=("encoder",), halting=True, task="stories"):
    def steps(n):
        return tuple(StepCounts(side, (5, 10 + n, 3, 0) if halting else (0, 0, 0, 18 + n)) for side in sides)

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
