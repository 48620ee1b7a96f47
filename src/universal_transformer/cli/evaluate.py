"""``ut evaluate``: the scores of a run, as a table and as ``report.json``."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from universal_transformer.cli.arguments import (
    DATA_DIR,
    RUN,
    Parser,
    add_answer_limit,
    add_batches,
    add_beams,
    add_depth,
    add_own_tests,
    check_writable,
    data_dir,
    is_first,
    say,
    search_of,
    whole,
)
from universal_transformer.cli.own_tests import OwnTests, load_own_tests
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.manifest import MODEL
from universal_transformer.models.generated import LENGTH_PENALTY
from universal_transformer.pretrained_models import find
from universal_transformer.runs.folder import BASELINE, METRICS

if TYPE_CHECKING:
    import argparse

    from universal_transformer.evaluation.measure import Progress
    from universal_transformer.evaluation.report import Report
    from universal_transformer.runs.opened import Run
    from universal_transformer.tasks.task import Task, TaskData


def run(arguments: list[str]) -> int:
    """Evaluate, print and write the report."""
    options = parser().parse(arguments)
    if options.data and (options.test or options.test_target or options.group is not None):
        raise UserError(f"--data {options.data} and --data.test: two test sets; leave one out")
    folder = find(options.run)
    _check_record(options.record, folder)
    with data_dir(options.data_dir):
        run, task = open_with_task(
            folder,
            device=options.device,
            data_dir=options.data_dir,
            other=options.data,
            own=OwnTests(files=options.test, targets=options.test_target, group=options.group),
            halting_execution=options.halting_execution,
        )
        if options.metric:
            task = dataclasses.replace(task, metric=options.metric)
        with sharing_positions(run):
            report, name = evaluate_run(run, task, options)
    if not is_first():
        return 0
    # the scores are shown before they are written: the disk may be full, or the folder of another user
    if options.json:
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        say("\n".join(report.lines()))
    sys.stdout.flush()
    path = save_report(report, run, name=name)
    if options.record:
        from universal_transformer.cli.record import record

        record(Path(options.record), run, report, arguments=arguments)
    if not options.json:
        say(f"written to {path}")
    return 0


def parser() -> Parser:
    """Return the parser of ``ut evaluate``."""
    from universal_transformer.tasks import OTHER_TESTS

    parser = Parser(
        "evaluate",
        description="Score a run; the report is written to RUN/report.json. Processes that torchrun starts share the "
        "positions of every sequence.",
    )
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--split",
        default="test",
        metavar="NAME",
        help="test (default), validation, train, or the name of a test set or of a group of its table",
    )
    parser.add_argument(
        "--metric", metavar="NAME", help="score by another metric than that of the training, such as sequence or bleu"
    )
    add_depth(parser)
    add_beams(parser)
    add_answer_limit(parser)
    parser.add_argument("--limit", type=whole(1), metavar="N", help="score at most N examples of each set")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--record", metavar="FILE", help="also write the scores with command, hardware, versions and commit"
    )
    add_batches(parser)
    parser.add_argument(
        "--data",
        choices=tuple(OTHER_TESTS),
        default="",
        metavar="NAME",
        help=f"score a language model on other data than those of its run: {', '.join(OTHER_TESTS)}",
    )
    add_own_tests(parser)
    parser.add_argument(
        "--data.group",
        dest="group",
        metavar="COLUMN",
        help="column of the test files whose values group the figures: a key of JSON lines, or a number of TSV; '' for "
        "none (default: that of the run)",
    )
    parser.add_argument("--data-dir", metavar="FOLDER", default="", help=DATA_DIR)
    return parser


def open_with_task(
    folder: Path,
    *,
    device: str = "auto",
    data_dir: str = "",
    other: str = "",
    own: OwnTests | None = None,
    halting_execution: Literal["auto", "masked"] | None = None,
    validation_size: int | None = None,
) -> tuple[Run, Task]:
    """Load the run in `folder` and its data (from `data_dir`, if that is given), the data set `other`, or own tests.

    `validation_size` replaces the number of validation examples that a task draws.
    """
    from universal_transformer.runs.opened import load_task, open_run
    from universal_transformer.tasks.task import with_validation_size

    run = open_run(folder, device=device, halting_execution=halting_execution)
    if other:
        from universal_transformer.tasks import OTHER_TESTS

        architecture = run.model.config.architecture
        if architecture != "language_model":
            raise UserError(
                f"--data {other}: {folder} holds a model of architecture {architecture}; this needs the run of a "
                "language model (ut train text, agreement or lambada)"
            )
        return run, OTHER_TESTS[other](run.codec, data_dir=data_dir)
    if data_dir and hasattr(run.config.data, "data_dir"):
        run = with_data(run, dataclasses.replace(run.config.data, data_dir=data_dir))
    if validation_size is not None:
        run = with_data(run, with_validation_size(run.config.data, validation_size))
    if own is not None and (own.files or own.targets or own.group is not None):
        return run, load_own_tests(run, own)
    return run, load_task(run)


def with_data(run: Run, data: TaskData) -> Run:
    """Return a run with another configuration of its data."""
    return dataclasses.replace(run, config=dataclasses.replace(run.config, data=data))


def evaluate_run(run: Run, task: Task, options: argparse.Namespace | None = None) -> tuple[Report, str]:
    """Evaluate as ``ut evaluate RUN`` does (by default with the depth of training); return the report and its name."""
    from universal_transformer.decoding.options import DecodingOptions
    from universal_transformer.evaluation.calibration import calibrated
    from universal_transformer.evaluation.measure import Selection, evaluate
    from universal_transformer.evaluation.metrics import metric_of
    from universal_transformer.rules import Exit

    options = options or parser().parse([str(run.folder), "--no-calibration"])
    baseline, metric = run.folder / BASELINE, metric_of(task)  # a pretrained model has no baseline
    metric.check(run.model, DecodingOptions())  # before the baseline is read, which is that of the metric
    inference = DecodingOptions(
        **search_of(options),
        max_new_tokens=options.max_new_tokens,
        max_steps=options.max_steps,
        halting_threshold=options.halting_threshold,
        exit=None if options.exit is None else Exit.parse(options.exit),
    )
    found, note = inference, ""
    if options.calibration:
        unlike = f"--data {options.data}" if options.data else ""
        found, note = calibrated(run.folder, inference, model=run.folder / MODEL, unlike=unlike)
    with progress_bar() as progress:
        report = evaluate(
            run.model,
            task,
            Selection(options.split, options.limit),
            options=found,
            batch_tokens=options.batch_tokens,
            baseline=metric.statistics.load(baseline, run.model.config) if baseline.exists() else None,
            progress=progress,
        )
    if note:
        report = dataclasses.replace(report, notes=(*report.notes, note))
    return report, _file_name(options, calibrated=found != inference)


def save_report(report: Report, run: Run, *, name: str) -> Path:
    """Write the report into the run, or for a pretrained model into the current folder; return its path."""
    path = run.reports / name
    run.reports.mkdir(exist_ok=True)
    report.save(path)
    return path


@contextmanager
def sharing_positions(run: Run) -> Iterator[None]:
    """Connect the processes that torchrun started, if it did: they share the positions of every sequence."""
    from universal_transformer.execution.context_parallel import make_context_parallel
    from universal_transformer.training.processes import joined, own_device

    device = own_device(next(run.model.parameters()).device)
    with joined(device) as processes:
        if processes.size > 1:
            make_context_parallel(run.model.to(device))
        yield


def _check_record(file: str | None, folder: Path) -> None:
    """Refuse, before the work, a file that cannot be written and a run without sound metrics of its training."""
    if not file:
        return
    check_writable("--record", file)
    if (folder / MODEL).is_dir() and not (folder / METRICS).is_file():
        raise UserError(
            f"--record {file}: {show_path(folder)} has no {METRICS}, which holds how the run was trained; "
            "leave --record out"
        )
    if (folder / METRICS).is_file():
        from universal_transformer.runs.journal import read_metrics

        read_metrics(folder / METRICS)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Show a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal or not is_first():
        yield None
        return
    with Bar(console=console, transient=True) as bar:
        row = bar.add_task("evaluating", total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)


def _file_name(options: argparse.Namespace, *, calibrated: bool) -> str:
    """Return ``report.json`` for the test sets with the model as trained; other options give other names."""
    chosen = {
        "data-": options.data or None,
        "test-": _as_name("-".join((*OwnTests(options.test).labels(), *options.test_target))) or None,
        "group-": None if options.group is None else _as_name(options.group) or "none",
        "": _as_name(options.split) if options.split != "test" else None,
        "metric-": options.metric,
        "steps-": options.max_steps,
        "threshold-": options.halting_threshold,
        "exit-": options.exit and options.exit.replace(":", "-"),
        "limit-": options.limit,
        "beams-": options.beams if options.beams > 1 else None,
        "tokens-": options.max_new_tokens,
        "penalty-": options.length_penalty if options.length_penalty != LENGTH_PENALTY else None,
    }
    parts = ["calibrated"] * calibrated + [f"{name}{value}" for name, value in chosen.items() if value is not None]
    return "-".join(["report", *parts]) + ".json"


def _as_name(text: str) -> str:
    """Return names that come from data, or paths, as a part of a file name; of a long one the end is kept."""
    return re.sub(r"[^\w.]+", "-", text)[-80:].strip("-")
