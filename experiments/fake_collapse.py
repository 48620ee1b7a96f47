"""Compare the warning of fake halting with PonderNet models that are made to stop early.

    python experiments/fake_collapse.py RUN ...

RUN are runs of the rule ponder, such as those that experiments/halting_rules.py trains. Each is scored on its
validation data with quantiles of the last step from 0.05 to 0.99, of which the small ones stop too early, and a table
of warnings and errors is written to results/studies/fake_collapse.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch

from study import STUDIES, arguments, write_page

from universal_transformer.evaluation.collapse import FAKE, NEGLIGIBLE, fake
from universal_transformer.manifest import MODEL
from universal_transformer.registry import build, load_pretrained
from universal_transformer.runs.folder import CONFIG
from universal_transformer.training.config import RunConfig
from universal_transformer.training.processes import never
from universal_transformer.training.selection import copy_weights, load_weights
from universal_transformer.training.validation import Validation
from universal_transformer.typed import replaced

QUANTILES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
WORSE = 0.001
"""An exit is worse if its share of wrong answers is above that at all steps by more than this."""


def rows(run: Path) -> Iterator[str]:
    """One row of the table for each quantile."""
    config = RunConfig.load(run / CONFIG)
    task, model = config.data.load(), load_pretrained(run / MODEL).eval()
    validation = Validation(
        task.validation,
        batch_tokens=config.training.batch_tokens,
        device=torch.device("cpu"),
        precision=nullcontext,
    )
    expected, scores = validation.expected_loss(model), {}
    for quantile in QUANTILES:
        early = build(replaced(model.config, {"halting.quantile": quantile})).eval()
        load_weights(early, copy_weights(model))
        scores[quantile] = validation.score(early, stopped=never)
    for quantile, score in scores.items():
        worse = score.error > scores[QUANTILES[-1]].error + WORSE
        warned = fake(score.cross_entropy, expected=expected) is not None
        verdict = {(True, True): "right", (True, False): "false alarm", (False, True): "missed", (False, False): ""}
        yield (
            f"| {run.name} | {quantile:g} | {score.mean_steps:.2f} | {score.cross_entropy:.5f} | {expected:.5f} "
            f"| {100 * score.error:.2f} | {'yes' if warned else ''} | {verdict[warned, worse]} |"
        )


def main(runs: list[Path]) -> None:
    lines = [line for run in runs for line in rows(run)]
    head = [
        "# Fake halting: warnings and errors",
        "",
        "Made by `python experiments/fake_collapse.py RUN ...`, which says what is compared. A warning needs a loss at",
        f"the exit of more than {FAKE:g} times its expectation over the steps, plus {NEGLIGIBLE:g}. It is right if the",
        f"exit has more than {100 * WORSE:g} points more errors than all steps.",
        "",
        "| run | quantile | steps | loss at the exit | expected loss | error, % | warning | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    write_page(STUDIES / "fake_collapse.md", [*head, *lines])


if __name__ == "__main__":
    main([Path(name) for name in arguments(__doc__)])
