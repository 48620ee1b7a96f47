"""Options that several commands have: each command inherits those that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from universal_transformer.cli.parser import OptionForm, Place
from universal_transformer.errors import UserError, refuse
from universal_transformer.models.call import GREEDY, LENGTH_PENALTY, Sampling
from universal_transformer.typed import Positive, Range

if TYPE_CHECKING:
    from universal_transformer.decoding.options import DecodingOptions

RunWord = Annotated[str, OptionForm("RUN", place=Place.WORD)]
Folder = Annotated[str, OptionForm("FOLDER")]
File = Annotated[str, OptionForm("FILE")]
Name = Annotated[str, OptionForm("NAME")]
MoreThanZero = Annotated[float, Range(0, above=True)]
GivenArguments = Annotated[tuple[str, ...], OptionForm(place=Place.ALL)]


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """Opens a run."""

    run: RunWord
    """Folder of the run, or the name of a pretrained model (ut models)."""


@dataclass(frozen=True, kw_only=True)
class Reporting(OfRun):
    """Writes reports of a run."""

    report: Folder = ""
    """Where reports are written (default: the folder of the run)."""

    def check_report(self) -> None:
        """Refuse, before the work, a folder of reports that cannot be made."""
        folder = Path(self.report)
        what = "this is a file" if folder.is_file() else f"there is no folder {folder.parent}"
        refuse((folder.is_file() or not folder.parent.is_dir(), f"--report {folder}: {what}; expected a folder"))


@dataclass(frozen=True, kw_only=True)
class OnData:
    """Reads data sets."""

    data_dir: Folder = ""
    """Folder with the data sets (default: the environment variable UT_DATA, or else data)."""


@dataclass(frozen=True, kw_only=True)
class Computing:
    """Computes with a trained model."""

    halting_execution: Annotated[
        Literal["auto", "masked"] | None, OptionForm(name="model.execution.halting_execution")
    ] = None
    """auto: leave out halted positions where that saves time; masked: never (default: as trained)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class InBatches:
    """Computes batches."""

    batch_tokens: Positive = 16384
    """Positions of a batch."""


@dataclass(frozen=True, kw_only=True)
class Answering(Computing):
    """Lets a model answer, with another depth or search than by default."""

    max_steps: Annotated[Positive, OptionForm("T")] | None = None
    """Number of steps, or cap on the steps of a halting model (default: as trained)."""
    halting_threshold: Annotated[float, Range(0, 1, above=True), OptionForm("P")] | None = None
    """Cumulative probability at which a position halts (default: as trained)."""
    exit: Annotated[str, OptionForm("KIND:X")] | None = None
    """Stop a position when its state (state_change) or the predicted distribution (output_change) changes by less than
    X, or when the largest probability is above X (confidence), for example confidence:0.9 (default: as trained)."""
    calibration: bool = True
    """Use the depth that ut calibrate found. Without it, or with an option that sets the depth, the depth is that of
    training or of the option."""
    beams: Annotated[Positive, OptionForm("K")] = 1
    """Beam search with K beams; 1 is greedy."""
    length_penalty: Annotated[float, Range(0, 10), OptionForm("A")] | None = None
    """Length penalty of a beam search, 0 to 10 (default: 0.6)."""
    max_new_tokens: Positive | None = None
    """Largest number of tokens of an answer (default: max(L + L/4 + 10, 2 S + 10), where L is the length of the longest
    answer in training and S that of the input)."""

    def decoding(self, sampling: Sampling = GREEDY) -> DecodingOptions:
        """Return these options as the decoder takes them; a penalty without beams is refused."""
        from universal_transformer.decoding.options import Beams, DecodingOptions
        from universal_transformer.rules import Exit

        if self.length_penalty is not None and self.beams == 1:
            raise UserError("--length-penalty is for a beam search: give --beams too (2 or more)")
        return DecodingOptions(
            beams=Beams(self.beams, LENGTH_PENALTY if self.length_penalty is None else self.length_penalty),
            sampling=sampling,
            max_new_tokens=self.max_new_tokens,
            max_steps=self.max_steps,
            halting_threshold=self.halting_threshold,
            exit=None if self.exit is None else Exit.parse(self.exit),
        )


@dataclass(frozen=True, kw_only=True)
class Scoring(OnData, Computing, InBatches):
    """Scores a model on the data of its run, or on test files of its own."""

    limit: Positive | None = None
    """Use at most N examples of each set."""
    json: bool = False
    """Print the result as JSON."""

    test: Annotated[tuple[str, ...], OptionForm("[NAME=]FILE", name="data.test")] = ()
    """Use these files in place of the test of the run, each as a test set of its own (pairs, text, labelled, tagged,
    parsing, pictures, captions); - is standard input."""
    test_target: Annotated[tuple[str, ...], OptionForm("FILE", name="data.test_target")] = ()
    """Target sides of the test files, one for each, if they are files of their own (pairs)."""
