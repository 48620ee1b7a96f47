"""``ut calibrate``: fewer steps for a trained model, within a loss that the user allows."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import (
    DATA_DIR,
    FAILED,
    Parser,
    add_batches,
    add_halting_execution,
    add_own_tests,
    data_dir,
    note,
    say,
    whole,
)
from universal_transformer.cli.own_tests import OwnTests
from universal_transformer.errors import UserError
from universal_transformer.files import show_path
from universal_transformer.manifest import MODEL
from universal_transformer.pretrained_models import find, is_pretrained

if TYPE_CHECKING:
    from universal_transformer.evaluation.calibration import Calibration

PLOT = "plots/calibration.svg"
"""Where the plot is, in the folder of a run."""


def run(arguments: list[str]) -> int:
    """Calibrate, write the calibration and its plot; return 1 if no setting is within the tolerance."""
    options = parser().parse(arguments)
    folder = find(options.run)
    if is_pretrained(folder):
        raise UserError(
            f"{options.run}: a pretrained model, in whose folder nothing is written; copy {show_path(folder)} and "
            "calibrate the copy"
        )
    from universal_transformer.cli.evaluate import open_with_task, progress_bar
    from universal_transformer.evaluation.calibration import CALIBRATION, Goal, percent, weights_of
    from universal_transformer.evaluation.depth_curves import calibrate
    from universal_transformer.evaluation.measure import Selection
    from universal_transformer.evaluation.settings import DepthRule
    from universal_transformer.runs.opened import read_config
    from universal_transformer.typed import typed

    rule = None if options.rule is None else typed(options.rule, DepthRule, where="--rule")
    if options.split == "train":
        raise UserError("--split train: errors on what a model was trained on say nothing about other data")
    split = options.split or ("test" if options.test else "validation")
    if options.test and split == "validation":
        raise UserError("--data.test names the test, and the split is validation: leave one out")
    if options.validation_size is not None and split != "validation":
        raise UserError(f"--validation-size is for the validation data, and the split is {split}: leave one out")
    read_config(folder)  # before the place of the calibration is looked at: it may be no folder
    goal = Goal(
        tolerance=options.tolerance,
        confidence=options.confidence,
        loss=options.loss,
        cheapest=options.cheapest,
    )
    with data_dir(options.data_dir):
        run, task = open_with_task(
            folder,
            device=options.device,
            data_dir=options.data_dir,
            own=OwnTests(files=options.test, targets=options.test_target),
            halting_execution=options.halting_execution,
            validation_size=options.validation_size,
        )
        with progress_bar() as progress:
            found = calibrate(
                run.model,
                task,
                Selection(split, options.limit),
                goal=goal,
                rule=rule,
                batch_tokens=options.batch_tokens,
                progress=progress,
            )
    found = replace(found, weights=weights_of(folder / MODEL))
    if options.json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        say("\n".join(found.lines()))
    sys.stdout.flush()  # shown before it is written: the disk may be full, or the folder of another user
    earlier = replaced(found, folder)
    found.save(folder)
    if earlier:
        note(
            f"ut: the earlier {folder / CALIBRATION} ({earlier.chosen or 'no setting'}, tolerance "
            f"{percent(earlier.goal.tolerance)}) is replaced; the confidence is that of one call, not of the best of "
            "several"
        )
    drawn = draw(found, folder)
    if not options.json:
        say(f"written to {folder / CALIBRATION}{drawn}")
    elif found.chosen is None:
        note(f"ut: {found.outcome}")
    return 0 if found.chosen else FAILED


def replaced(found: Calibration, folder: Path) -> Calibration | None:
    """Return the calibration of the same weights that the run has, if it has another outcome."""
    from universal_transformer.evaluation.calibration import CALIBRATION, Calibration

    try:
        earlier = Calibration.load(folder) if (folder / CALIBRATION).is_file() else None
    except UserError:  # damaged: there is nothing to choose from
        return None
    unlike = earlier is None or earlier.weights != found.weights or earlier.chosen == found.chosen
    return None if unlike else earlier


def parser() -> Parser:
    """Return the parser of ``ut calibrate``."""
    parser = Parser(
        "calibrate",
        description="Find the smallest number of steps with which a trained model loses right answers only within a "
        "tolerance, with a stated confidence. RUN/calibration.json then sets the depth of ut evaluate, ut predict and "
        "load.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--tolerance",
        type=share,
        required=True,
        metavar="SHARE",
        help="largest share of answers that may turn from right to wrong (--loss changed: that may differ), or largest "
        "loss of the score of tags and texts, such as 0.5%% or 0.005",
    )
    parser.add_argument(
        "--confidence",
        type=share,
        default=0.95,
        metavar="SHARE",
        help="probability that the share is within the tolerance (default: 95%%)",
    )
    parser.add_argument(
        "--rule",
        metavar="NAME",
        help="test this rule alone (default: all rules that the model supports; the confidence is divided among them)",
    )
    parser.add_argument(
        "--loss",
        choices=("drop", "changed"),
        default="drop",
        help="drop: answers that turn wrong, or the score that is lost (default); changed: answers that differ",
    )
    parser.add_argument(
        "--cheapest",
        choices=("steps", "seconds"),
        default="steps",
        help="choose the setting of least mean steps (default), or of the least measured time",
    )
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="validation (default), test, or the name of a test set or of a group of its table; it should not have "
        "been trained on",
    )
    parser.add_argument(
        "--validation-size",
        type=whole(1),
        metavar="N",
        help="draw N validation examples (boards, stories) in place of the number of the training, for tasks that "
        "generate their data or choose them by number",
    )
    parser.add_argument("--limit", type=whole(1), metavar="N", help="use at most N examples of each set")
    parser.add_argument("--json", action="store_true", help="print the calibration as JSON")
    add_halting_execution(parser)
    add_batches(parser)
    add_own_tests(parser)
    parser.add_argument("--data-dir", metavar="FOLDER", default="", help=DATA_DIR)
    return parser


def share(text: str) -> float:
    """Return an argument as a share: ``0.5%`` or ``0.005``."""
    number = text.removesuffix("%").strip()
    try:
        value = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a share between 0 and 1, such as 0.5% or 0.005")
    return value


def draw(found: Calibration, folder: Path) -> str:
    """Draw the calibration, where matplotlib is installed and the plot can be written; return what to say of it."""
    from universal_transformer.explore.canvas import svg
    from universal_transformer.explore.depth_figures import loss_by_steps
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
