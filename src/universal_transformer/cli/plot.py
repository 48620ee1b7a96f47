"""``ut plot``: the report of a run as one HTML file, with its figures as SVG files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.cli.output import note, say
from universal_transformer.cli.shared_options import OnData, Reporting
from universal_transformer.files import quoted
from universal_transformer.pretrained_models import find
from universal_transformer.runs.folder import METRICS
from universal_transformer.typed import Positive

if TYPE_CHECKING:
    from universal_transformer.decoding.options import DecodingOptions
    from universal_transformer.evaluation.report import Report
    from universal_transformer.runs.opened import Run
    from universal_transformer.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Plot(OnData, Reporting):
    """Write the report of a run, at the depth that ut evaluate RUN uses: RUN/report.html and RUN/plots/*.svg."""

    stories: Positive = 1
    """Examples to show."""
    again: bool = False
    """Evaluate again, even if report.json exists."""

    def __call__(self) -> int:
        """Evaluate the run if it has no report yet, and write ``report.html`` and ``plots/``."""
        from universal_transformer.cli.evaluate import Evaluate, evaluate_run, save_report
        from universal_transformer.evaluation.report import Report
        from universal_transformer.runs.opened import open_with_task

        folder = find(self.run)
        self.check_report()
        run, task = open_with_task(folder, data_dir=self.data_dir)
        run = replace(run, other_reports=self.report)
        metrics_of(run)  # refused before the work, if they are not sound
        evaluation = Evaluate(run=self.run)
        inference, depth = evaluation.inference(run)
        name = evaluation.file_name(calibrated=inference != evaluation.decoding())
        path = next((path for path in (run.reports / name, folder / name) if path.is_file()), None)
        report = Report.load(path) if path and not self.again else None
        if report is None or (depth and depth not in report.notes):  # of an earlier calibration
            note(f"evaluating first, as ut evaluate {quoted(folder)} does")
            report, name = evaluate_run(run, task, evaluation)
            save_report(report, run, name=name)
        say(f"report: {draw(run, task, report, count=self.stories, options=inference)}")
        return 0


def draw(run: Run, task: Task, report: Report, *, count: int, options: DecodingOptions) -> Path:
    """Write the page about `report`, with `count` examples in detail; return its path. Their attention together takes
    as much of the page as that of one long example.
    """
    from universal_transformer.evaluation.prediction import MOST_WEIGHTS
    from universal_transformer.explore.episode_figures import watch
    from universal_transformer.explore.report_page import write_report
    from universal_transformer.explore.story import choose_examples, examine

    examples, name = choose_examples(run.model, task, count=count, options=options), run.folder.resolve().name
    return write_report(
        run.reports,
        run=run.folder,
        report=report,
        examples=[
            examine(run.model, run.codec, example, options=options, name=name, most_weights=MOST_WEIGHTS // count)
            for example in examples
        ],
        metrics=metrics_of(run),
        episode=watch(run.model, task) if task.episodes else None,
    )


def metrics_of(run: Run) -> list[dict[str, Any]]:
    """Return the metrics of the training of a run; none for a run without them."""
    from universal_transformer.runs.journal import read_metrics

    path = run.folder / METRICS
    return read_metrics(path) if path.is_file() else []
