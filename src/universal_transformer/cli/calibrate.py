"""``ut calibrate``: fewer steps for a trained model, within a loss that the user allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from universal_transformer.cli.output import FAILED, note, say, show_result
from universal_transformer.cli.parser import OptionForm
from universal_transformer.cli.shared_options import Name, RunWord, Scoring
from universal_transformer.errors import UserError, refuse
from universal_transformer.files import show_path
from universal_transformer.manifest import MODEL
from universal_transformer.pretrained_models import find, is_pretrained
from universal_transformer.runs.opened import OwnTests, open_with_task, read_config
from universal_transformer.typed import Positive, typed

if TYPE_CHECKING:
    from universal_transformer.evaluation.calibration import Calibration

PLOT = "plots/calibration.svg"
"""Where the plot is, in the folder of a run."""
SOON, LONG = 5.0, 60.0
"""Seconds of a calibration that are said, and for which a quicker one is named."""
ShareText = Annotated[str, OptionForm("SHARE")]


@dataclass(frozen=True, kw_only=True)
class Calibrate(Scoring):
    """Find the smallest number of steps with which a trained model loses right answers only within a tolerance.

    The tolerance holds with a stated confidence. RUN/calibration.json then sets the depth of ut evaluate, ut predict
    and load.
    """

    run: RunWord
    """Folder of the run."""
    tolerance: ShareText
    """Largest share of answers that may turn from right to wrong (--loss changed: that may differ), or largest loss of
    the score of tags and texts, such as 0.5% or 0.005."""
    confidence: ShareText = "95%"
    """Probability that the share is within the tolerance."""
    rule: Name = ""
    """Test this rule alone (default: all rules that the model supports; the confidence is divided among them)."""
    loss: Literal["drop", "changed"] = "drop"
    """drop: answers that turn wrong, or the score that is lost; changed: answers that differ."""
    cheapest: Literal["steps", "seconds"] = "steps"
    """Choose the setting of least mean steps, or of the least measured time."""
    quick: bool = False
    """Test every fourth setting of a rule, and measure their time once."""
    split: Name = ""
    """The validation (default), test, or the name of a test set or of a group of its table; it should not have been
    trained on."""
    validation_size: Positive | None = None
    """Draw N validation examples (boards, stories) in place of the number of the training, for tasks that generate
    their data or choose them by number."""

    def __call__(self) -> int:
        """Calibrate, write the calibration and its plot; return 1 if no setting is within the tolerance."""
        tolerance = share(self.tolerance, option="--tolerance")
        confidence = share(self.confidence, option="--confidence")
        folder = find(self.run)
        if is_pretrained(folder):
            packaged = f"a pretrained model, in whose folder nothing is written; copy {show_path(folder)}"
            raise UserError(f"{self.run}: {packaged} and calibrate the copy")
        from universal_transformer.cli.evaluate import progress_bar
        from universal_transformer.evaluation.calibration import CALIBRATION, Goal, percent, weights_of
        from universal_transformer.evaluation.depth_curves import calibrate
        from universal_transformer.evaluation.measure import Selection
        from universal_transformer.evaluation.settings import DepthRule

        rule = typed(self.rule, DepthRule, where="--rule") if self.rule else None
        split = self.split or ("test" if self.test else "validation")
        drawn, both = self.validation_size is not None, f"and the split is {split}: leave one out"
        refuse(
            (split == "train", "--split train: errors on what a model was trained on say nothing about other data"),
            (self.test and split == "validation", f"--data.test names the test, {both}"),
            (drawn and split != "validation", f"--validation-size is for the validation data, {both}"),
        )
        read_config(folder)  # before the place of the calibration is looked at: it may be no folder
        run, task = open_with_task(
            folder,
            device=self.device,
            data_dir=self.data_dir,
            own=OwnTests(files=self.test, targets=self.test_target),
            halting_execution=self.halting_execution,
            validation_size=self.validation_size,
        )
        goal = Goal(
            tolerance=tolerance,
            confidence=confidence,
            loss=self.loss,
            cheapest=self.cheapest,
            rule=rule,
            quick=self.quick,
        )
        with progress_bar() as progress:
            found = calibrate(
                run.model,
                task,
                Selection(split, self.limit),
                goal=goal,
                batch_tokens=self.batch_tokens,
                progress=progress,
                announce=None if self.json else announce,
            )
        found = replace(found, weights=weights_of(folder / MODEL))
        show_result(found, as_json=self.json)
        earlier = replaced(found, folder)
        found.save(folder)
        if earlier:
            note(
                f"ut: the earlier {folder / CALIBRATION} ({earlier.chosen or 'no setting'}, tolerance "
                f"{percent(earlier.goal.tolerance)}) is replaced; the confidence is that of one call, not of the best "
                "of several"
            )
        plot = draw(found, folder)
        if not self.json:
            say(f"written to {folder / CALIBRATION}{plot}")
        elif found.chosen is None:
            note(f"ut: {found.outcome}")
        return 0 if found.chosen else FAILED


def announce(seconds: float) -> None:
    """Say how long a calibration takes; a rule ends at the first setting that loses too much."""
    from universal_transformer.explore.canvas import duration

    quicker = "; --quick tests fewer settings" if seconds > LONG else ""
    if seconds > SOON:
        note(f"ut: all settings take at most {duration(seconds)}{quicker}")


def replaced(found: Calibration, folder: Path) -> Calibration | None:
    """Return the calibration of the same weights that the run has, if it has another outcome."""
    from universal_transformer.evaluation.calibration import CALIBRATION, Calibration

    try:
        earlier = Calibration.load(folder) if (folder / CALIBRATION).is_file() else None
    except UserError:  # damaged: there is nothing to choose from
        return None
    unlike = earlier is None or earlier.weights != found.weights or earlier.chosen == found.chosen
    return None if unlike else earlier


def share(text: str, *, option: str) -> float:
    """Return an argument as a share: ``0.5%`` or ``0.005``."""
    number = text.removesuffix("%").strip()
    try:
        value = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise UserError(f"{option}: {text!r}: expected a share between 0 and 1, such as 0.5% or 0.005")
    return value


def draw(found: Calibration, folder: Path) -> str:
    """Draw the calibration, where matplotlib is installed and the plot can be written; return what to say of it."""
    from universal_transformer.explore.canvas import svg
    from universal_transformer.explore.figures import loss_by_steps
    from universal_transformer.files import write_bytes

    path = folder / PLOT
    try:
        figure = loss_by_steps(found)
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, svg(figure))
    except UserError as error:  # without matplotlib
        return f" (not drawn: {error})"
    except OSError as error:
        return f" (not drawn: {error.filename or path}: {error.strerror or error})"
    return f", {path}"
