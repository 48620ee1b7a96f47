"""``ut evaluate RUN --record FILE``: write a measured figure with everything that it depends on."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from universal_transformer.evaluation.report import Report
    from universal_transformer.runs.opened import Run


def record(path: Path, run: Run, report: Report, *, arguments: list[str]) -> None:
    """Write scores, the commands that repeat them, training time, hardware, versions and commit as one JSON file.

    `arguments` are those of ``ut evaluate``. The command of training is null for a recipe that is not in `RECIPES`.
    """
    from universal_transformer.files import from_here, write_json
    from universal_transformer.recipes import RECIPES
    from universal_transformer.recipes.command import train_command
    from universal_transformer.runs.folder import METRICS
    from universal_transformer.runs.journal import read_metrics
    from universal_transformer.training.provenance import code_in_use, hardware

    lines, code = read_metrics(run.folder / METRICS), code_in_use()
    started = {name: value for name, value in _last(lines, "start").items() if name != "folder"}
    if run.config.warm_start:
        given = run.config.warm_start.run
        started["warm_start"] = started["warm_start"].replace(given, from_here(given))
    write_json(
        path,
        {
            "train": train_command(run.config) if run.config.recipe in RECIPES else None,
            "evaluate": shlex.join(["ut", "evaluate", *arguments]),
            "digest": run.config.digest(),
            "seed": run.config.training.seed,
            "started": started,
            "ended": _last(lines, "end"),
            "resumed": sum(line["event"] == "resume" for line in lines),
            "hardware": hardware(threads=started.get("threads", 0), device=started.get("device", "cpu")),
            "versions": code.versions,
            "code_at_evaluation": {"commit": code.commit, "clean": code.clean},
            "report": report.to_dict(),
        },
    )


def _last(lines: list[dict[str, Any]], event: str) -> dict[str, Any]:
    return next((line for line in reversed(lines) if line["event"] == event), {})
