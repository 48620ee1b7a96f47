"""``ut demo``: train, test and plot the embedded default; after an interruption, the next call continues."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.output import INTERRUPTED, note
from universal_transformer.cli.shared_options import Folder
from universal_transformer.errors import UserError
from universal_transformer.files import quoted
from universal_transformer.runs.folder import CONFIG

if TYPE_CHECKING:
    from universal_transformer.evaluation.report import Report

RECIPE, FOLDER = "stories", "runs/demo"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small model on generated stories in a few minutes, test it, and plot its steps."""

    run: Folder = FOLDER
    """Where it is kept."""

    def __call__(self) -> int:
        """Train or continue, unless the run is finished; evaluate, plot; return 130 when interrupted."""
        folder = Path(self.run)
        if not _train(folder):
            note(f"call {_command(folder)} again to continue")
            return INTERRUPTED
        from universal_transformer.cli.evaluate import evaluate_run, save_report
        from universal_transformer.cli.plot import draw
        from universal_transformer.runs.opened import open_with_task

        run, task = open_with_task(folder)
        report, name = evaluate_run(run, task)
        print(*_results(report), sep="\n")
        save_report(report, run, name=name)
        print(f"report: {draw(run, task, report)} (open it in a browser)")
        print(f"all figures: ut evaluate {quoted(folder)}; your own stories: ut predict {quoted(folder)} FILE")
        return 0


def _train(folder: Path) -> bool:
    """Train to the end of the recipe; return False if interrupted."""
    from universal_transformer.cli.train import start
    from universal_transformer.recipes import RECIPES
    from universal_transformer.runs.opened import is_finished, read_config

    resume = (folder / CONFIG).is_file()
    config = read_config(folder) if resume else RECIPES[RECIPE]()
    if config.recipe != RECIPE:
        raise UserError(f"{folder}: a run of the recipe {config.recipe}; ut demo trains {RECIPE}: name another --run")
    if is_finished(folder):
        print(f"{folder} is trained already (delete the folder to train again)")
        return True
    if not resume:
        minutes = "" if config.training.minutes is None else f" for {config.training.minutes:g} minutes"
        print(f"training{minutes}; Ctrl-C saves, and {_command(folder)} continues")
    result = start(config, folder, task=config.data.load(), resume=resume)
    return result.stopped != "interrupted"


def _command(folder: Path) -> str:
    """Return the command that continues the demo in `folder`."""
    if folder == Path(FOLDER):
        return "ut demo (or make demo)"
    return f"ut demo --run {quoted(folder)}"


def _results(report: Report) -> list[str]:
    """Return error and mean ponder time by number of supporting facts, as lines."""
    from universal_transformer.evaluation.report import show_steps

    ponder = {found.num_supports: show_steps(found.steps) for found in report.steps_by_supports}
    lines = [
        "",
        f"{'questions that need':<20}  {'examples':>8}  {'error':>8}  {'steps a fact (mean ± sd)':>24}",
    ]
    for row in [*report.rows, *report.totals]:
        digits = "".join(letter for letter in row.group if letter.isdigit())
        steps = ponder.get(int(digits), "") if digits else show_steps(row.steps[0])
        lines.append(f"{row.group or 'all':<20}  {row.count:>8,}  {row.metrics['error']:>6.2f} %  {steps:>24}")
    return [*lines, *(f"warning: {text}" for text in report.warnings), ""]
