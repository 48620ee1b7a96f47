"""``ut models``: list the pretrained models, show the card of one, or score its sample again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from universal_transformer.cli.output import FAILED, note, say
from universal_transformer.cli.parser import OptionForm, Place
from universal_transformer.errors import UserError
from universal_transformer.manifest import MODEL
from universal_transformer.pretrained_models import FOLDER, PAGE, known, names

if TYPE_CHECKING:
    from universal_transformer.pretrained_models.card import Figures, Sample


@dataclass(frozen=True, kw_only=True)
class Models:
    """List the pretrained models that are part of the package."""

    name: Annotated[str, OptionForm("NAME", place=Place.WORD)] = ""
    """Show the card of this model."""
    check: bool = False
    """Score the sample of the card again (without NAME: of each card), and compare."""

    def __call__(self) -> int:
        """List, show or check; return 1 if a checked model does not score what its card says."""
        if self.name and self.name not in names():
            raise UserError(f"{self.name!r}: no such model{known(self.name)}")
        chosen = [self.name] if self.name else names()
        if self.check:
            return FAILED if sum([not _check(name) for name in chosen]) else 0
        if self.name:
            from universal_transformer.pretrained_models.card import HEADER

            say((FOLDER / self.name / PAGE).read_text(encoding="utf-8").removeprefix(HEADER).rstrip())
            return 0
        from universal_transformer.pretrained_models.card import read_card

        width = max(map(len, chosen))
        for name in chosen:
            card = read_card(FOLDER / name)
            say(f"{name:<{width}}  {card.size / 1e6:.1f} MB  {card.summary}")
        print('\nut models NAME shows the card of one; ut predict NAME, and in Python load("NAME"), use it')
        return 0


def score_sample(folder: Path, sample: Sample) -> Figures:
    from universal_transformer.decoding.options import DecodingOptions
    from universal_transformer.evaluation.calibration import calibrated
    from universal_transformer.evaluation.measure import Selection, evaluate
    from universal_transformer.runs.opened import load_task, open_run
    from universal_transformer.tasks.task import file_fields, with_files
    from universal_transformer.training.run_config import RunConfig

    run = open_run(folder)
    fields = run.config.to_dict()
    fields["data"]["fields"] |= sample.data
    config = RunConfig.from_dict(fields, name=f"the sample of {folder.name}")
    ours = {field: folder / path for field, path in file_fields(config.data).items() if field in sample.data}
    config = dataclasses.replace(config, data=with_files(config.data, ours))
    task = load_task(dataclasses.replace(run, config=config))
    options, _ = calibrated(folder, DecodingOptions(), model=folder / MODEL)
    return evaluate(run.model, task, Selection(limit=sample.limit), options=options).figures


def _check(name: str) -> bool:
    """Print a line for each figure that is not the one on the card, or for what is missing; return whether all hold."""
    from universal_transformer.pretrained_models.card import differences, read_card

    sample = read_card(FOLDER / name).sample
    try:
        found = differences(score_sample(FOLDER / name, sample), sample.figures)
    except UserError as error:  # data that are not there: the other models are checked all the same
        note(f"ut: {name}: {error}")
        return False
    for line in found:
        say(f"{name}: {line}")
    if not found:
        say(f"{name}: the sample scores what its card says")
    return not found
