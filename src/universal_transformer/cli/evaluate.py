"""``ut evaluate``: the scores of a run, as a table and as ``report.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import DATA_DIR, Parser, add_depth, data_dir, whole
from universal_transformer.data.text import write_json

if TYPE_CHECKING:
    import argparse

    from universal_transformer.evaluation import Report

SPLITS = ("test", "validation", "train")


def run(arguments: list[str]) -> int:
    """Evaluate, print and write the report."""
    options = _parser().parse(arguments)
    folder = Path(options.run)
    with data_dir(options.data_dir):
        report = evaluate_run(folder, options)
    path = folder / report_name(options)
    write_json(path, report.to_dict())
    if options.json:
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(*report.lines(), sep="\n")
        print(f"report: {path}")
    return 0


def evaluate_run(folder: Path, options: argparse.Namespace) -> Report:
    """Load the run in `folder` with its data and score it."""
    import dataclasses

    from universal_transformer.cli.run_folder import load_task, open_run, pick_device

    run = open_run(folder, device=pick_device(options.device))
    if options.data_dir and hasattr(run.config.data, "data_dir"):
        data = dataclasses.replace(run.config.data, data_dir=options.data_dir)
        run = dataclasses.replace(run, config=dataclasses.replace(run.config, data=data))
    task = load_task(run)
    from universal_transformer.evaluation import evaluate

    return evaluate(
        run.model,
        task,
        split=options.split,
        batch_tokens=options.batch_tokens or run.config.training.batch_tokens,
        max_steps=options.max_steps,
        halting_threshold=options.halting_threshold,
        limit=options.limit,
    )


def report_name(options: argparse.Namespace) -> str:
    """Return ``report.json`` for the test sets as trained; other choices stand in the name, and overwrite nothing."""
    parts = [options.split] * (options.split != "test")
    parts += [f"steps-{options.max_steps}"] * (options.max_steps is not None)
    parts += [f"threshold-{options.halting_threshold:g}"] * (options.halting_threshold is not None)
    parts += [f"limit-{options.limit}"] * (options.limit is not None)
    return "-".join(["report", *parts]) + ".json"


def _parser() -> Parser:
    parser = Parser("evaluate", description="Score a run; the report is written to RUN/report.json.")
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--split", choices=SPLITS, default="test", help="what to score (default: test)")
    add_depth(parser)
    parser.add_argument("--limit", type=whole(1), metavar="N", help="score at most N examples of each set")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--batch-tokens", type=whole(1), metavar="N", help="positions worked on at once")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--data-dir", metavar="FOLDER", default="", help=DATA_DIR)
    return parser


def default_options(folder: Path) -> argparse.Namespace:
    """Return what ``ut evaluate FOLDER`` means."""
    return _parser().parse([str(folder)])


__all__ = ["default_options", "evaluate_run", "report_name", "run"]
