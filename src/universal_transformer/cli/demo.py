"""``ut demo``: train, calibrate, test and plot stories; after an interruption, the next call continues."""

from dataclasses import dataclass
from pathlib import Path

from universal_transformer.cli.output import INTERRUPTED, note
from universal_transformer.cli.shared_options import Folder
from universal_transformer.errors import UserError
from universal_transformer.files import quoted
from universal_transformer.runs.folder import CONFIG

RECIPE, FOLDER = "stories", "runs/demo"
CHANGES = {
    "training.minutes": 2.0,  # the installation, the calibration, the test and the plots come on top
    "model.depth.max_steps": 4,
    "model.halting.side": "none",
    "training.step_loss": "mean",
}
"""A fixed depth with the loss after each step. Calibrated, a story stops when its answer is sure: docs/depth.md."""
TOLERANCE, RULE = "1%", "confidence"
"""Of the calibration. Of the exits, this one saves most steps on stories: notebook/depth_rules.md."""
STORIES = 3
"""Examples in the report: one for each number of supporting facts."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small model on generated stories in a few minutes, let stories stop early, test and plot it."""

    run: Folder = FOLDER
    """Where it is kept."""

    def __call__(self) -> int:
        """Train or continue, unless the run is finished; calibrate, evaluate, plot; return 130 when interrupted."""
        folder = Path(self.run)
        if not _train(folder):
            note(f"call {_command(folder)} again to continue")
            return INTERRUPTED
        from universal_transformer.cli.calibrate import Calibrate
        from universal_transformer.cli.evaluate import Evaluate
        from universal_transformer.cli.plot import Plot
        from universal_transformer.evaluation.calibration import CALIBRATION

        if not (folder / CALIBRATION).is_file():
            Calibrate(run=self.run, tolerance=TOLERANCE, rule=RULE)()
        Evaluate(run=self.run)()
        Plot(run=self.run, stories=STORIES)()
        print(f"open the report in a browser; your own stories: ut predict {quoted(folder)} FILE")
        return 0


def _train(folder: Path) -> bool:
    """Train to the end of the recipe; return False if interrupted."""
    from universal_transformer.cli.train import start
    from universal_transformer.recipes import RECIPES
    from universal_transformer.runs.opened import limit_of, read_config
    from universal_transformer.typed import replaced

    resume = (folder / CONFIG).is_file()
    config = read_config(folder) if resume else replaced(RECIPES[RECIPE](), CHANGES)
    if config.recipe != RECIPE:
        raise UserError(f"{folder}: a run of the recipe {config.recipe}; ut demo trains {RECIPE}: name another --run")
    if limit_of(folder):
        print(f"{folder} is trained already (delete the folder to train again)")
        return True
    if not resume:
        minutes = "" if config.training.minutes is None else f" for {config.training.minutes:g} minutes"
        print(f"training{minutes}; Ctrl-C saves, and {_command(folder)} continues")
    result = start(config, folder, task=config.data.load(), resume=resume)
    return result.stopped != "interrupted"


def _command(folder: Path) -> str:
    if folder == Path(FOLDER):
        return "ut demo (or make demo)"
    return f"ut demo --run {quoted(folder)}"
