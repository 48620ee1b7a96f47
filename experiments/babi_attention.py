"""Measure the attention of questions by step, in the models of bAbI of the package (section 3.1 of the paper).

    python experiments/babi_attention.py

Adds the models that are missing to results/studies/babi_attention.jsonl and writes results/studies/babi_attention.md.
Needs UT_DATA.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from tempfile import TemporaryDirectory

from study import Line, Study, arguments, ut

from universal_transformer.evaluation.report import StepCounts
from universal_transformer.training.provenance import code_in_use, hardware

MODELS = {"babi": "babi --exit confidence:0.999", "babi-halting": "babi-halting"}
"""Name -> model and exit."""
MOST_SUPPORTS = 3
"""29 of the 2,000 questions have more."""


def measure(name: str) -> Line:
    """Evaluate a model, and return the line of results."""
    options = f"{MODELS[name]} --attention --limit 2000"
    with TemporaryDirectory() as folder:
        report = json.loads(ut("evaluate", *options.split(), "--report", folder, "--json"))
    code = code_in_use()
    return {
        "model": name,
        "command": f"ut evaluate {options}",
        "hardware": hardware(threads=1, device="cpu"),
        "versions": code.versions,
        "commit": code.commit,
        "clean": code.clean,
        "attention": report["attention"],
        "steps_by_supports": report["steps_by_supports"],
    }


def page(lines: list[Line]) -> Iterator[str]:
    """Both quantities at each step, and the steps of all positions, as Markdown."""
    depth = max(at["step"] for line in lines for at in line["attention"])
    numbers = [*range(2, depth + 1)]
    entropy, weight = "entropy at step 1 (1: uniform)", "weight of supporting facts at step 1 (1: uniform)"
    columns = ["model", "supporting facts", entropy, *numbers, weight, *numbers, "steps", "uniformity of steps"]
    yield "The attention of questions to facts, by step: `python experiments/babi_attention.py`"
    yield ""
    yield f"| {' | '.join(map(str, columns))} |"
    yield "|---" * len(columns) + "|"
    for line in lines:
        taken = {
            found["num_supports"]: StepCounts(found["steps"]["side"], tuple(found["steps"]["counts"]))
            for found in line["steps_by_supports"]
        }
        for supports, group in groupby(line["attention"], key=lambda at: at["num_supports"]):
            if supports <= MOST_SUPPORTS:
                found, steps = [*group], taken[supports]
                figures = [f"{at[quantity]:.2f}" for quantity in ("entropy", "mass") for at in found]
                cells = [line["model"], supports, *figures, f"{steps.mean:.2f}", f"{steps.uniformity:.2f}"]
                yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    arguments(__doc__ or "", least=0, most=0)
    study = Study(__file__, key=("model",), page=page)
    for (name,) in study.missing((name,) for name in MODELS):
        study.add(measure(name))
    study.render()


if __name__ == "__main__":
    main()
