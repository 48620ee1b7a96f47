"""``ut train``: train a recipe with changed fields, or continue a run."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from universal_transformer.cli.output import INTERRUPTED, first_alone_speaks, is_first, note, program, say
from universal_transformer.cli.parser import OptionForm, Place, options_of
from universal_transformer.cli.shared_options import File, Folder, OnData
from universal_transformer.errors import UserError, refuse, suggestion
from universal_transformer.files import quoted, show_path
from universal_transformer.pretrained_models import find, is_pretrained
from universal_transformer.runs.folder import CONFIG
from universal_transformer.runs.opened import (
    limit_of,
    load_data,
    open_run,
    other_runs,
    read_config,
    with_found_files,
)

if TYPE_CHECKING:
    from universal_transformer.runs.trainer import TrainingResult
    from universal_transformer.tasks.task import Task
    from universal_transformer.training.run_config import RunConfig

USAGE = """\
ut train RECIPE [--field value ...] [options]
       ut train --config FILE [--field value ...] [options]
       ut train RUN --stage halting [--field value ...] [options]
       ut train --resume RUN [--minutes N] [--max-updates N] [--field value --accept-change FIELD ...]"""


@dataclass(frozen=True, kw_only=True)
class Train(OnData):
    """Train a recipe, each field of which is an option, or continue a run."""

    fields: Annotated[tuple[str, ...], OptionForm(place=Place.FIELDS)] = ()
    run: Folder = ""
    """Folder of the run (default: runs/RECIPE-DIGEST)."""
    config: File = ""
    """A config.json, or the folder of a run that has one, in place of a recipe."""
    resume: Annotated[str, OptionForm("RUN")] = ""
    """Continue a run from its last checkpoint."""
    accept_change: Annotated[tuple[str, ...], OptionForm("FIELD")] = ()
    """Change a field deliberately when a run continues. For example a learning rate after a loss that was not finite:
    --learning-rate 1e-4 --accept-change training.learning_rate."""
    stage: Annotated[str, OptionForm("halting")] = ""
    """Train only a halting unit on the weights of a trained run. Positions then stop where predictions stop improving;
    a new folder is written (default: RUN-halting)."""
    from_: Annotated[str, OptionForm("RUN")] = ""
    """Start from the weights of another run, or of a pretrained model (ut models). Copied are tensors of equal name and
    shape, and the rows of tokens that are in both vocabularies."""
    dry_run: bool = False
    """Print what a run would cost, and train nothing. Printed are parameters, FLOPs, memory, expected time, numbers of
    examples, and whether halted positions are left out of the computation (or why not)."""
    quiet: bool = False
    """Show no progress."""
    help: bool = False
    """With a recipe, show the fields used most; without, all recipes."""
    help_all: bool = False
    """With a recipe, show every field."""

    def __call__(self) -> int:
        """Train; return 0, or 130 when interrupted (the run can then be continued)."""
        accepted = [field.removeprefix("--").replace("-", "_") for field in self.accept_change]
        with first_alone_speaks():
            if self.help or self.help_all:
                return self._help()
            if self.resume:
                return self._resume(accepted)
            if accepted:
                remedy = f"ut train --resume RUN --accept-change {' '.join(accepted)}"
                raise UserError(f"--accept-change is for a run that continues: {remedy}")
            return self._begin()

    def _begin(self) -> int:
        from universal_transformer.cli.fields import given, without_effect
        from universal_transformer.tasks.task import with_absolute_files
        from universal_transformer.typed import replaced

        if self.config:
            refuse((self.stage, "--stage and --config: leave one of them out"))
            config, fields = _read(Path(self.config)), [*self.fields]
            name = config.recipe
        elif not self.fields or self.fields[0].startswith("-"):
            raise UserError(f"name a recipe first: ut train RECIPE [--field value]; {_known()}")
        else:
            name, *fields = self.fields
            config = self._second_stage(Path(name)) if self.stage else _recipe(name)
        fields = [*self._place_of_data(config), *fields]
        values = given(config, fields, prog=f"ut train {name}", also=list(options_of(Train)))
        if self.stage:
            from universal_transformer.training.halting_schedule import changed_second_stage

            config = changed_second_stage(config, values)
        else:
            config = replaced(config, values)
        for text in without_effect(config, values):
            note(text)
        if self.from_:
            from universal_transformer.training.warm_start import warm_start_of

            other = find(self.from_)
            read_config(other)
            config = dataclasses.replace(config, warm_start=warm_start_of(other))
        config = dataclasses.replace(config, data=with_absolute_files(config.data))
        path = Path(name) if Path(name).name not in ("", "..") else Path(name).resolve()  # "." has no name of its own
        folder = Path(self.run or (f"{path}-halting" if self.stage else f"runs/{name}-{config.digest()}"))
        if self.dry_run:
            from universal_transformer.training.dry_run import estimate

            say("\n".join(estimate(config, load_data(config)).lines()))
            print(f"nothing was trained; a run would be kept in {folder}")
            return 0
        _check_new(folder)
        return self._train(config, folder)

    def _place_of_data(self, config: RunConfig) -> list[str]:
        return ["--data.data-dir", self.data_dir] if self.data_dir and hasattr(config.data, "data_dir") else []

    def _second_stage(self, run: Path) -> RunConfig:
        from universal_transformer.training.halting_schedule import second_stage

        own = "a second stage starts from the weights of its own run"
        refuse(
            (self.stage != "halting", f"--stage {self.stage}: no stage of this name; allowed: halting"),
            (self.from_, f"--from and --stage: {own}; leave --from out"),
        )
        found = open_run(run)
        config = with_found_files(found.config, found.folder)
        staged = second_stage(config, found.folder)
        if config.model.halts and not config.model.expects_loss:
            rule = config.model.halting.rule
            note(f"note: this run (rule {rule}) puts out the mean of its states; the second stage takes the last one")
        return staged

    def _resume(self, accepted: Sequence[str]) -> int:
        from universal_transformer.cli.fields import override

        folder, name = Path(self.resume), quoted(self.resume)
        trained = f"a pretrained model, and no run to continue; ut train --config {name} --from {name} --run NEW"
        weights = "a run starts from other weights once, when it is new"
        word = next((word for word in self.fields[:1] if not word.startswith("-")), None)
        refuse(
            (self.run, "--run and --resume: a run continues in its own folder; leave --run out"),
            (self.config, "--config and --resume: a run continues with its own; leave --config out"),
            (self.stage, "--stage and --resume: a run continues in the stage that it is in; leave --stage out"),
            (self.from_, f"--from and --resume: {weights}; leave --from out"),
            (self.dry_run, "--dry-run is for a new run: ut train RECIPE --dry-run"),
            (word, f"unexpected {word!r}: --resume takes its recipe from {show_path(folder / CONFIG)}"),
            (is_pretrained(find(folder)), f"--resume {name}: {trained} starts from its weights"),
            (not folder.exists(), f"{show_path(folder)}: no such run folder{other_runs(folder)}"),
        )
        config = read_config(folder)
        if not self.fields and (limit := limit_of(folder)):
            note(f"note: this run is finished; a higher {limit} continues it")
        fields = [*self._place_of_data(config), *self.fields]
        config = override(config, fields, prog="ut train --resume", also=list(options_of(Train)))
        return self._train(config, folder, accepted=accepted)

    def _train(self, config: RunConfig, folder: Path, *, accepted: Sequence[str] = ()) -> int:
        from universal_transformer.runs.resume import check_usable

        resume = bool(self.resume)
        if is_first() or resume:  # before the data are loaded, which may take long
            check_usable(folder, config, resume=resume, accepted=accepted)
        config = with_found_files(config, folder) if resume else config
        task = load_data(config)
        if not self.quiet:
            for text in task.notes:
                note(f"note: {text}")
        result = start(config, folder, task=task, resume=resume, quiet=self.quiet, accepted=accepted)
        if result.stopped == "interrupted":
            if self.quiet:
                note(f"ut: {result.text}")
            return INTERRUPTED
        if self.quiet:
            say("\n".join([result.text, *(f"warning: {text}" for text in result.warnings)]))
        name = quoted(folder)
        following = (f"evaluate {name}", f"predict {name} FILE", f"plot {name}")
        print("next:", *(f"  {program()} {command}" for command in following), sep="\n")
        return 0

    def _help(self) -> int:
        """Print the options and the fields of a recipe or a run, or the options and all recipes."""
        from universal_transformer.cli.fields import fields_page
        from universal_transformer.cli.parser import page
        from universal_transformer.cli.recipes import summary
        from universal_transformer.recipes import RECIPES

        options = [option for option in options_of(Train) if option.field != "fields"]
        name = next((word for word in self.fields[:1] if not word.startswith("-")), "")
        if self.resume or name:
            config = read_config(Path(self.resume)) if self.resume else _recipe(name)
            about = summary(RECIPES[config.recipe]) if config.recipe in RECIPES else ""
            prog = "ut train --resume RUN" if self.resume else f"ut train {name}"
            everything = self.help_all
            shown = fields_page(
                config, prog=prog, usage=USAGE, description=about, options=options, everything=everything
            )
            print(shown)
            return 0
        print(page("ut train", Train.__doc__ or "", {"options": options}, usage=USAGE))
        width = max(map(len, RECIPES))
        lines = [f"  {name:<{width}}  {summary(recipe)}" for name, recipe in RECIPES.items()]
        print("", *lines, "", "ut train RECIPE --help shows its fields.", sep="\n")
        return 0


def start(
    config: RunConfig,
    folder: Path,
    *,
    task: Task,
    resume: bool,
    quiet: bool = False,
    accepted: Sequence[str] = (),
) -> TrainingResult:
    """Print the data and the folder, then train; torch is imported here."""
    from universal_transformer.training.data_lines import data_lines

    if not quiet:
        say("\n".join([f"data        {task.name}", *data_lines(task, config.model), f"run folder  {folder}"]))
        sys.stdout.flush()
    from universal_transformer.runs.trainer import train

    return train(config, folder, task=task, resume=resume, quiet=quiet, accept_changes=accepted)


def _check_new(folder: Path) -> None:
    """Refuse a folder that contains a run; the error names the commands for that run."""
    if not (folder / CONFIG).is_file() or not is_first():
        return
    here = quoted(folder)
    what = f"run that is not finished: ut train --resume {here}"
    if limit := limit_of(folder):
        resume = f"ut train --resume {here} with a higher {limit}"
        what = f"finished run: ut evaluate {here} scores it, {resume}"
    raise UserError(f"{show_path(folder)} holds a {what} continues it, --run FOLDER trains another")


def _recipe(name: str) -> RunConfig:
    from universal_transformer.recipes import RECIPES

    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}{suggestion(name, RECIPES)}; {_known()}")
    return RECIPES[name]()


def _read(path: Path) -> RunConfig:
    """Return a configuration that was written, with the names of its files where they are now."""
    from universal_transformer.training.run_config import RunConfig

    missing = path.suffix == ".json" and not path.exists()
    refuse((missing, "no such file; expected a config.json, or the folder of a run"), at=f"--config {show_path(path)}")
    config = RunConfig.load(path) if path.is_file() else read_config(path)
    return with_found_files(config, path.parent if path.is_file() else path)


def _known() -> str:
    from universal_transformer.recipes import MAIN

    return f"recipes: {', '.join(MAIN)}, and the rows of tables (ut recipes TABLE)"
