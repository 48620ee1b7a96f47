"""One run of a table: trained or continued in its folder, then measured, with all that its figures depend on."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from paper.definition import ResultTable
from paper.results import Key, Result, Say
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.manifest import MODEL
from universal_transformer.recipes.command import train_command
from universal_transformer.runs.folder import CONFIG, METRICS, REPORT
from universal_transformer.training.provenance import Code, code_in_use, hardware
from universal_transformer.training.run_config import RunConfig

if TYPE_CHECKING:
    from universal_transformer.tasks.task import Task

SHORTEST = 20.0
"""Seconds: with less time than that left, or than a tenth of the time there was, no run is begun."""

Stop = Literal["interrupted", "budget"]


class Unfinished(Exception):  # noqa: N818  not an error: a stop was requested, or the time is used up
    """A run was stopped before its end, and why; it can be continued."""

    def __init__(self, reason: Stop) -> None:
        self.reason: Stop = reason


@dataclass(frozen=True)
class PlannedRun:
    """A run to be made: a row with a seed."""

    row: str
    config: RunConfig

    @property
    def key(self) -> Key:
        """The key that it is recorded with."""
        return self.row, self.config.training.seed, self.config.digest()

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.row} seed {self.config.training.seed}"

    @property
    def limit(self) -> str:
        """How long it is trained, in words."""
        minutes, updates = self.config.training.minutes, self.config.training.max_updates
        limits = [] if minutes is None else [f"{minutes:g} minutes"]
        limits += [] if updates is None else [f"{updates:,} updates"]
        return " or ".join(limits)


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Makes the runs of a table: where their folders are, and until when there is time."""

    table: ResultTable
    runs: Path
    """Folder of the run folders."""
    say: Say
    quiet: bool = False
    until: float = math.inf
    """End of the available time, as `time.monotonic` counts."""

    @property
    def rest(self) -> float:
        """Seconds that are left."""
        return self.until - time.monotonic()

    @property
    def shortest(self) -> float:
        """Seconds that must be left for a run to begin."""
        return min(SHORTEST, self.rest / 10)

    def folder(self, run: PlannedRun) -> Path:
        """Return the run's folder."""
        name = f"seed-{run.config.training.seed}-{run.config.digest()}"
        return self.runs / self.table.name / run.row / name

    def make(self, run: PlannedRun, *, task: Task) -> Result:
        """Train a run or continue it, and measure it; raise Unfinished when a signal or the time stops it."""
        from universal_transformer.runs.journal import ending
        from universal_transformer.runs.resume import check_usable
        from universal_transformer.runs.trainer import train

        folder = self.folder(run)
        resume = (folder / CONFIG).is_file()
        if resume and ending(folder) is not None:
            check_usable(folder, run.config, resume=True)
            return self.measure(run, task=task)
        folder.parent.mkdir(parents=True, exist_ok=True)
        result = train(run.config, folder, task=task, resume=resume, quiet=self.quiet, deadline=self.until)
        if result.stopped == "interrupted":
            raise Unfinished("interrupted" if self.rest > 0 else "budget")
        return self.measure(run, task=task)

    def measure(self, run: PlannedRun, *, task: Task) -> Result:
        """Score the trained model; return its figures and all that they depend on."""
        import torch

        import paper.fixed_length  # noqa: F401  registers the metric
        from universal_transformer.decoding.options import DecodingOptions
        from universal_transformer.evaluation.measure import Scored, evaluate
        from universal_transformer.evaluation.report import Side
        from universal_transformer.registry import load_pretrained
        from universal_transformer.runs.journal import ending, read_metrics

        def watch(_scored: Scored) -> None:
            if self.rest <= 0:
                raise Unfinished("budget")

        folder = self.folder(run)
        end = ending(folder)
        assert end is not None, "only a trained run is measured"
        lines = read_metrics(folder / METRICS)
        begun = [line for line in lines if line["event"] in ("start", "resume")]
        if not begun or "error" not in end:
            raise UserError(
                f"{show_path(folder / METRICS)}: it lacks the start or the validation of a run; delete the run folder"
            )
        device = str(begun[-1]["device"])
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise UserError(f"{show_path(folder)}: trained on a GPU, but torch finds none; record it where it has one")
        model = load_pretrained(folder / MODEL).to(device)
        scored = task if self.table.metric is None else dataclasses.replace(task, metric=self.table.metric)
        options = DecodingOptions(beams=self.table.beams.get(run.row.split("/")[0], 1))
        report = evaluate(model, scored, options=options, watch=watch)
        report.save(folder / REPORT)
        figures = report.figures if self.table.measure is None else self.table.measure(model, task)
        code, changes = _origin(begun)
        examples = {"train": len(task.train), "validation": len(task.validation)}
        examples["test"] = sum(map(len, task.test.values()))
        warnings = [str(line["text"]) for line in lines if line["event"] == "warning"]
        return Result(
            table=self.table.name,
            row=run.row,
            seed=run.config.training.seed,
            config=run.config.digest(),
            figures=figures,
            validation={"error": 100 * float(end["error"]), "cross_entropy": float(end["cross_entropy"])},
            mean_steps=report.mean_steps,
            steps_by_supports={str(one.num_supports): [*one.steps.counts] for one in report.steps_by_supports},
            steps={side: [*one.counts] for side in get_args(Side) if (one := report.steps(side)) is not None},
            examples=examples,
            parameters=model.num_parameters(),
            updates=int(end["update"]),
            seconds=float(end["seconds"]),
            resumes=len(begun) - 1,
            stopped=str(end["stopped"]),
            chosen=str(end["chosen"]),
            hardware=hardware(threads=int(begun[-1]["threads"]), device=device),
            versions=code.versions,
            commit=code.commit,
            clean=code.clean,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            notes=[*report.notes, *changes],
            warnings=list(dict.fromkeys([*warnings, *report.warnings])),
            command=train_command(run.config),
            settings=run.config.to_dict(),
            curve=_curve(lines),
        )


def _curve(lines: Iterable[Mapping[str, Any]]) -> list[list[float]]:
    """Return the validations during training; after an interruption, those that the run made last."""
    found = [line for line in lines if line["event"] == "validation" and line.get("weights", "last") == "last"]
    by_update = {line["update"]: [line["update"], line["cross_entropy"], 100 * line["error"]] for line in found}
    return [by_update[update] for update in sorted(by_update)]


def _origin(begun: Sequence[Mapping[str, Any]]) -> tuple[Code, list[str]]:
    """Return the code that the run was last trained with, and a note if it changed before the measurement."""
    now, known = code_in_use(), [*map(Code.from_line, begun)]
    if all(code == now for code in known):
        return now, []
    trained = "; then with ".join(dict.fromkeys(map(str, known)))
    return known[-1], [f"trained with {trained}; measured with {now}"]


def plan(
    table: ResultTable,
    rows: Sequence[str],
    *,
    seeds: int,
    minutes: float | None = None,
    updates: int | None = None,
    batch_tokens: int | None = None,
) -> list[PlannedRun]:
    """Return the runs of `rows` with seeds 0 to `seeds` - 1: all rows with one seed before the next seed.

    `minutes` and `updates`, if not both None, replace the limits of the recipes, and `batch_tokens` their batches.
    """
    planned = []
    for seed in range(seeds):
        for row in rows:
            config = table.rows[row]()
            training = dataclasses.replace(config.training, seed=seed)
            if minutes or updates:
                training = dataclasses.replace(training, minutes=minutes, max_updates=updates)
            if batch_tokens is not None:
                training = dataclasses.replace(training, batch_tokens=batch_tokens)
            planned.append(PlannedRun(row, dataclasses.replace(config, training=training)))
    return planned


def pending(planned: Sequence[PlannedRun], results: Sequence[Result]) -> list[PlannedRun]:
    """Return the runs that are not recorded yet."""
    recorded = {result.key for result in results}
    return [run for run in planned if run.key not in recorded]
