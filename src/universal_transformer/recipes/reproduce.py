"""Measure a table: train what is not recorded yet, record each run when it is finished, write the table.

A run is recorded once: its key is (row, seed, digest of its configuration). One that was interrupted is gone on with
from its folder, ``RUNS/TABLE/ROW/seed-N-DIGEST``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.data.text import show_path, write_text
from universal_transformer.errors import UserError
from universal_transformer.recipes.provenance import checkout, hardware, train_command, versions
from universal_transformer.recipes.results import Key, Result, ResultsFile, Say
from universal_transformer.recipes.table import Table
from universal_transformer.training.config import RunConfig

if TYPE_CHECKING:
    from universal_transformer.evaluation.report import Report
    from universal_transformer.tasks.task import Task

CONFIG, METRICS, MODEL, REPORT = "config.json", "metrics.jsonl", "model", "report.json"


@dataclass(frozen=True)
class Planned:
    """A run to be made: a row with a seed."""

    row: str
    config: RunConfig

    @property
    def key(self) -> Key:
        """What it is recorded under."""
        return Key(self.row, self.config.training.seed, self.config.digest())

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.row} seed {self.config.training.seed}"

    def folder(self, runs: Path, *, table: str) -> Path:
        """Return its run folder."""
        return runs / table / self.row / f"seed-{self.config.training.seed}-{self.config.digest()}"


@dataclass
class Outcome:
    """What came of it."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """One line for each run that could not be made."""
    interrupted: bool = False


def plan(table: Table, rows: Sequence[str], *, seeds: int, minutes: float | None = None) -> list[Planned]:
    """Return the runs of `rows` with seeds 0 to `seeds` - 1: all rows with one seed before the next seed."""
    planned = []
    for seed in range(seeds):
        for row in rows:
            config = table.rows[row]()
            training = dataclasses.replace(config.training, seed=seed)
            if minutes is not None:
                training = dataclasses.replace(training, minutes=minutes)
            planned.append(Planned(row, dataclasses.replace(config, training=training)))
    return planned


def results_file(table: Table, folder: Path, *, say: Say) -> ResultsFile:
    """Return the file that the table's results are in."""
    return ResultsFile(folder / f"{table.name}.jsonl", table=table.name, say=say)


def pending(planned: Sequence[Planned], results: Sequence[Result]) -> list[Planned]:
    """Return the runs that are not recorded yet."""
    recorded = {result.key for result in results}
    return [run for run in planned if run.key not in recorded]


def write_table(table: Table, file: ResultsFile) -> Path:
    """Write the table's Markdown beside its results; return its path."""
    path = file.path.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, table.render(file.read()))
    return path


def reproduce(
    table: Table, planned: Sequence[Planned], *, results: Path, runs: Path, say: Say, quiet: bool = False
) -> Outcome:
    """Make every run of `planned` that is not recorded, and record it; the table is written after each.

    A run that fails is left for another time and the next one made; but data of the first one that cannot be read
    are a UserError, for the others will hardly fare better.
    """
    file = results_file(table, results, say=say)
    todo = pending(planned, file.read())
    say(f"{len(planned) - len(todo)} of {len(planned)} runs are recorded in {show_path(file.path)}")
    outcome = Outcome()
    checkout()  # now: what is committed while runs go on is not what they run
    for number, run in enumerate(todo, start=1):
        try:
            task = run.config.data.load()
        except UserError as error:
            if number == 1:
                raise
            _fail(outcome, run, error, say=say)
            continue
        folder = run.folder(runs, table=table.name)
        say(f"[{number}/{len(todo)}] {run.name}: {_limit(run.config)}, in {show_path(folder)}")
        results.mkdir(parents=True, exist_ok=True)
        try:
            if not _train(run, folder, task=task, quiet=quiet):
                outcome.interrupted = True
                return outcome
            result = _measure(run, folder, task=task, table=table)
        except UserError as error:
            _fail(outcome, run, error, say=say)
            continue
        if not file.append(result):
            say(f"{run.name}: another process has recorded it meanwhile")
        outcome.done.append(run.name)
        say(f"{run.name}: {_account(result)}")
        write_table(table, file)
    return outcome


def _fail(outcome: Outcome, run: Planned, error: UserError, *, say: Say) -> None:
    outcome.failed.append(f"{run.name}: {error}")
    say(f"{run.name}: not finished")


def _limit(config: RunConfig) -> str:
    minutes, updates = config.training.minutes, config.training.max_updates
    return " or ".join([f"{minutes:g} minutes"] * bool(minutes) + [f"{updates:,} updates"] * bool(updates))


def _account(result: Result) -> str:
    errors = [scores["error"] for scores in result.figures.values()]
    return (
        f"error {sum(errors) / len(errors):.2f} % (validation {result.validation['error']:.2f} %), "
        f"{result.mean_steps:.2f} steps a position, {result.updates:,} updates in {result.seconds / 60:.1f} minutes"
    )


def _train(run: Planned, folder: Path, *, task: Task, quiet: bool) -> bool:
    """Train the run, or go on with it, or find it trained; False if interrupted."""
    from universal_transformer.training.folder import check_usable
    from universal_transformer.training.trainer import train

    resume = (folder / CONFIG).is_file()
    if resume and _end(folder) is not None:
        check_usable(folder, run.config, resume=True)
        return True
    folder.parent.mkdir(parents=True, exist_ok=True)
    result = train(run.config, folder, task=task, resume=resume, quiet=quiet)
    return result.stopped != "interrupted"


def _end(folder: Path) -> dict[str, Any] | None:
    """Return what the run's metrics say about its end; None if it has not come to it."""
    from universal_transformer.training.tracking import read_metrics

    if not (folder / METRICS).is_file() or not (folder / MODEL).is_dir():
        return None
    lines = read_metrics(folder / METRICS)
    ended = bool(lines) and lines[-1]["event"] == "end" and lines[-1].get("stopped") != "interrupted"
    return lines[-1] if ended else None


def _measure(run: Planned, folder: Path, *, task: Task, table: Table) -> Result:
    """Score the trained model on the test set, and put together all that its figures depend on."""
    from universal_transformer.evaluation import evaluate
    from universal_transformer.models.build import load_pretrained
    from universal_transformer.training.tracking import read_metrics

    end = _end(folder)
    assert end is not None
    lines = read_metrics(folder / METRICS)
    begun = [line for line in lines if line["event"] in ("start", "resume")]
    if not begun or "error" not in end:
        raise UserError(
            f"{show_path(folder / METRICS)}: no beginning or no validation in it; delete the run folder"
        )
    device = str(begun[-1]["device"])
    model = load_pretrained(folder / MODEL).to(device)
    report = evaluate(model, task)
    report.save(folder / REPORT)
    code = checkout()
    warnings = [str(line["text"]) for line in lines if line["event"] == "warning"]
    return Result(
        table=table.name,
        row=run.row,
        seed=run.config.training.seed,
        config=run.config.digest(),
        figures=dict(_figures(report)),
        validation={"error": 100 * float(end["error"]), "cross_entropy": float(end["cross_entropy"])},
        mean_steps=report.mean_steps,
        steps_by_supports={str(one.num_supports): list(one.steps.counts) for one in report.steps_by_supports},
        examples={
            "train": len(task.train),
            "validation": len(task.validation),
            "test": sum(map(len, task.test.values())),
        },
        parameters=model.num_parameters(),
        updates=int(end["update"]),
        seconds=float(end["seconds"]),
        resumes=len(begun) - 1,
        stopped=str(end["stopped"]),
        chosen=str(end["chosen"]),
        hardware=hardware(threads=int(begun[-1]["threads"]), device=device),
        versions=versions(),
        commit=code.commit,
        clean=code.clean,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=list(report.notes),
        warnings=list(dict.fromkeys([*warnings, *report.warnings])),
        command=train_command(run.config),
        settings=run.config.to_dict(),
    )


def _figures(report: Report) -> Iterator[tuple[str, dict[str, float]]]:
    for row in report.rows:
        steps = {"mean_steps": row.steps[0].mean} if row.steps else {}
        yield row.group or row.set, {**row.metrics, "count": row.count, **steps}


__all__ = ["Outcome", "Planned", "pending", "plan", "reproduce", "results_file", "write_table"]
