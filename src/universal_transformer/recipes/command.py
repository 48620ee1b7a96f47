"""What repeats a recorded run: its command, and all that a figure of it depends on."""

from __future__ import annotations

import dataclasses
import shlex
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.errors import UserError
from universal_transformer.files import from_here, show, write_json
from universal_transformer.manifest import MODEL
from universal_transformer.recipes import RECIPES
from universal_transformer.runs.folder import CONFIG, METRICS
from universal_transformer.training.provenance import code_in_use, hardware
from universal_transformer.training.run_config import RunConfig
from universal_transformer.typed import leaves

if TYPE_CHECKING:
    from universal_transformer.evaluation.report import Report
    from universal_transformer.runs.opened import Run


def train_command(config: RunConfig) -> str:
    """Return the ``ut train`` command whose configuration is `config`: its recipe, and the fields that differ.

    A second stage is ``ut train RUN --stage halting`` and the fields that differ. Raises UserError for a recipe that
    ``ut train`` does not know.
    """
    if config.recipe not in RECIPES:
        raise UserError(f"recipe {show(config.recipe)}: not listed by ut recipes, so that no command trains it")
    staged = config.warm_start if config.training.stage == "halting" else None
    base = _staged(config, Path(staged.run)) if staged else RECIPES[config.recipe]()
    options: list[str] = []
    for group in ("data", "model", "training"):
        ours, theirs = getattr(config, group), getattr(base, group)
        for path in leaves(type(ours)):
            value = attrgetter(path)(ours)
            if not path.startswith("vocabulary.") and value != attrgetter(path)(theirs):
                options += _option(f"{group}.{path}".replace("_", "-"), value)
    if staged:
        return shlex.join(["ut", "train", from_here(staged.run), "--stage", "halting", *options])
    options += ["--from", from_here(config.warm_start.run)] if config.warm_start else []
    return shlex.join(["ut", "train", config.recipe, *options])


def _staged(config: RunConfig, run: Path) -> RunConfig:
    """Return what ``ut train RUN --stage halting`` begins with; of a run that is gone, with the rest of `config`."""
    from universal_transformer.training.halting_schedule import halting_model, halting_training, second_stage

    if (run / CONFIG).is_file() and (run / MODEL).is_dir():
        return second_stage(RunConfig.load(run / CONFIG), run)
    return dataclasses.replace(
        config, model=halting_model(config.model, run=run), training=halting_training(config.training)
    )


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        groups, _, last = name.rpartition(".")
        return [f"--{name}" if value else f"--{groups}.no-{last}"]
    values = value if isinstance(value, tuple) else (value,)
    # 2.0 is written as 2, and other numbers with all their digits
    texts = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
    return [f"--{name}", *map(str, texts)]


def record(path: Path, run: Run, report: Report, *, arguments: list[str]) -> None:
    """Write the scores of a run, and what they depend on, as one JSON file (``ut evaluate RUN --record FILE``).

    `arguments` are those of ``ut evaluate``. The command of training is null for a recipe that is not in `RECIPES`.
    """
    from universal_transformer.runs.journal import read_metrics  # imports torch, which commands of rows need not

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
