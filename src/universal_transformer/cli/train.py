"""``ut train``: train a recipe with changed fields, or continue a run."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.cli.arguments import INTERRUPTED, data_dir, first_alone_speaks, is_first, note, say, take
from universal_transformer.errors import UserError, suggestion
from universal_transformer.files import quoted, show_path
from universal_transformer.pretrained_models import find
from universal_transformer.runs.folder import CONFIG
from universal_transformer.runs.opened import is_finished, load_data, open_run, read_config, with_found_files

if TYPE_CHECKING:
    from universal_transformer.runs.trainer import TrainingResult
    from universal_transformer.tasks.task import Task
    from universal_transformer.training.config import RunConfig

VALUES = ("--run", "--resume", "--from", "--stage", "--data-dir")
FLAGS = ("--dry-run", "--quiet")
ACCEPT = "--accept-change"

USAGE = """\
usage: ut train RECIPE [--field value ...] [--run FOLDER] [--from RUN] [--data-dir FOLDER] [--dry-run] [--quiet]
       ut train RUN --stage halting [--field value ...] [--run FOLDER] [--quiet]
       ut train --resume RUN [--minutes N] [--max-updates N] [--field value --accept-change FIELD ...] [--quiet]

--run FOLDER       folder of the run (default: runs/RECIPE-DIGEST)
--resume RUN       continue a run from its last checkpoint
--accept-change FIELD
                   change a field deliberately when a run continues, for example a learning rate after a loss that was
                   not finite: --learning-rate 1e-4 --accept-change training.learning_rate; may be repeated
--stage halting    train only a halting unit on the weights of a trained run, so that positions stop where predictions
                   stop improving; writes a new folder (default: RUN-halting)
--from RUN         start from the weights of another run, or of a pretrained model (ut models): copy tensors of equal
                   name and shape, and the rows of tokens that are in both vocabularies
--data-dir FOLDER  folder with the data sets (default: the environment variable UT_DATA, or else data)
--dry-run          print parameters, FLOPs, memory, expected time and numbers of examples, and whether halted
                   positions are left out of the computation (or why not); train nothing
--quiet            show no progress"""


def run(arguments: list[str]) -> int:
    """Train; return 0, or 130 when interrupted (the run can then be continued)."""
    rest = list(arguments)
    accepted = _take_accepted(rest)
    taken = take(rest, values=VALUES, flags=FLAGS)
    wants_help = any(token in ("-h", "--help") for token in rest)
    with data_dir(taken.get("--data-dir")), first_alone_speaks():
        if taken.get("--resume"):
            return _resume(rest, taken, accepted=accepted)
        if accepted:
            raise UserError(f"{ACCEPT} is for a run that continues: ut train --resume RUN {ACCEPT} {accepted[0]}")
        return _help(rest[0]) if wants_help else _begin(rest, taken)


def _begin(rest: list[str], taken: dict[str, str | None]) -> int:
    from universal_transformer.cli.fields import given, without_effect
    from universal_transformer.tasks.task import with_absolute_files
    from universal_transformer.typed import replaced

    if not rest or rest[0].startswith("-"):
        raise UserError(f"name a recipe first: ut train RECIPE [--field value]; {_known()}")
    name, *fields = rest
    staged = taken.get("--stage")
    config = _second_stage(Path(name), stage=staged, also="--from" in taken) if staged else _recipe(name)
    if taken.get("--data-dir") and hasattr(config.data, "data_dir"):
        fields = ["--data.data-dir", str(taken["--data-dir"]), *fields]
    values = given(config, fields, prog=f"ut train {name}", also=(*VALUES, *FLAGS))
    if staged:
        from universal_transformer.training.halting_stage import changed_second_stage

        config = changed_second_stage(config, values)
    else:
        config = replaced(config, values)
    if unused := without_effect(config, values):
        note(f"note: {', '.join(unused)}: without effect, because no side halts (model.halting.side none)")
    if taken.get("--from"):
        from universal_transformer.training.warm_start import warm_start_of

        other = find(str(taken["--from"]))
        read_config(other)
        config = dataclasses.replace(config, warm_start=warm_start_of(other))
    config = dataclasses.replace(config, data=with_absolute_files(config.data))
    path = Path(name) if Path(name).name not in ("", "..") else Path(name).resolve()  # "." has no name of its own
    folder = Path(taken.get("--run") or (f"{path}-halting" if staged else f"runs/{name}-{config.digest()}"))
    if "--dry-run" in taken:
        from universal_transformer.cli.dry_run import estimate

        say("\n".join(estimate(config).lines()))
        print(f"nothing was trained; a run would be kept in {folder}")
        return 0
    _check_new(folder)
    return _train(config, folder, resume=False, quiet="--quiet" in taken)


def _second_stage(run: Path, *, stage: str, also: bool) -> RunConfig:
    """Return the configuration of the second stage of a trained run."""
    from universal_transformer.models.config import ModelConfig
    from universal_transformer.training.halting_stage import second_stage

    if stage != "halting":
        raise UserError(f"--stage {stage}: no stage of this name; allowed: halting")
    if also:
        raise UserError("--from and --stage: a second stage starts from the weights of its own run; leave --from out")
    found = open_run(run)
    config = with_found_files(found.config, found.folder)
    staged = second_stage(config, found.folder)
    if isinstance(config.model, ModelConfig) and config.model.halts and not config.model.expects_loss:
        rule = config.model.halting.rule
        note(f"note: this run (rule {rule}) puts out the mean of its states; the second stage takes the last one")
    return staged


def _take_accepted(arguments: list[str]) -> list[str]:
    """Remove every ``--accept-change FIELD``; return the fields, written as in a configuration."""
    fields = []
    while ACCEPT in (names := [token.partition("=")[0] for token in arguments]):
        place = names.index(ACCEPT)
        option, arguments[place:] = arguments[place : place + 2], arguments[place + 2 :]
        fields.append(str(take(option, values=(ACCEPT,), flags=())[ACCEPT]))
        arguments[place:place] = option  # of --accept-change=FIELD, the one after it
    return [field.removeprefix("--").replace("-", "_") for field in fields]


def _resume(rest: list[str], taken: dict[str, str | None], *, accepted: list[str]) -> int:
    from universal_transformer.cli.fields import override, print_help

    folder = Path(str(taken["--resume"]))
    if taken.get("--run"):
        raise UserError("--run and --resume: a run continues in its own folder; leave --run out")
    if taken.get("--stage"):
        raise UserError("--stage and --resume: a run continues in the stage that it is in; leave --stage out")
    if taken.get("--from"):
        raise UserError("--from and --resume: a run starts from other weights once, when it is new; leave --from out")
    config = read_config(folder)
    if any(token in ("-h", "--help") for token in rest):
        print_help(config, prog="ut train --resume RUN", description=USAGE)
        return 0
    if "--dry-run" in taken:
        raise UserError("--dry-run is for a new run: ut train RECIPE --dry-run")
    if rest and not rest[0].startswith("-"):
        raise UserError(f"unexpected {rest[0]!r}: --resume takes its recipe from {show_path(folder / CONFIG)}")
    if taken.get("--data-dir") and getattr(config.data, "data_dir", ""):
        rest = ["--data.data-dir", str(taken["--data-dir"]), *rest]
    if not rest and is_finished(folder):
        note("note: this run is finished; a higher --minutes or --max-updates continues it")
    config = override(config, rest, prog="ut train --resume", also=(*VALUES, *FLAGS, ACCEPT))
    return _train(config, folder, resume=True, quiet="--quiet" in taken, accepted=accepted)


def _train(config: RunConfig, folder: Path, *, resume: bool, quiet: bool, accepted: Sequence[str] = ()) -> int:
    from universal_transformer.runs.resume import check_usable

    if is_first() or resume:  # before the data are loaded, which may take long
        check_usable(folder, config, resume=resume, accepted=accepted)
    config = with_found_files(config, folder) if resume else config
    task = load_data(config)
    if not quiet:
        for text in task.notes:
            note(f"note: {text}")
    result = start(config, folder, task=task, resume=resume, quiet=quiet, accepted=accepted)
    if result.stopped == "interrupted":
        if quiet:
            note(f"ut: interrupted, saved; continue with: ut train --resume {quoted(folder)}")
        return INTERRUPTED
    if quiet:
        say("\n".join(_result_lines(result)))
    name = quoted(folder)
    print("next:", f"  ut evaluate {name}", f"  ut predict {name} FILE", f"  ut plot {name}", sep="\n")
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
    from universal_transformer.cli.data_lines import data_lines

    if not quiet:
        # without test files the validation examples are the test set: they are listed once
        counts = [f"{len(task.train):,} examples to train on", f"{len(task.validation):,} to validate"]
        counts += [f"{len(found):,} {name}" for name, found in task.test.items() if name != "validation"]
        say(f"{task.name}: {', '.join(counts)}")
        say("\n".join([*data_lines(task), f"run folder: {folder}"]))
        sys.stdout.flush()
    from universal_transformer.runs.trainer import train

    return train(config, folder, task=task, resume=resume, quiet=quiet, accept_changes=accepted)


def _result_lines(result: TrainingResult) -> list[str]:
    """Return the result of a finished run as lines."""
    from universal_transformer.training.display import steps_text

    lines = [f"{result.updates:,} updates in {result.seconds / 60:.1f} minutes; {result.chosen} weights kept"]
    if result.score is not None:
        score = result.score
        parts = [f"error {score.error:.2%}", f"cross-entropy {score.cross_entropy:.4f}", *steps_text(score.steps)]
        lines += [f"validation: {', '.join(parts)}", result.baseline]
    return [*lines, *(f"warning: {text}" for text in result.warnings)]


def _check_new(folder: Path) -> None:
    """Refuse a folder that contains a run; the error names the commands for that run."""
    if not (folder / CONFIG).is_file() or not is_first():
        return
    name, here = show_path(folder), quoted(folder)
    other = "--run FOLDER trains another"
    if is_finished(folder):
        raise UserError(
            f"{name} holds a finished run: ut evaluate {here} scores it, "
            f"ut train --resume {here} with a higher --minutes or --max-updates continues it, {other}"
        )
    raise UserError(f"{name} holds a run that is not finished: ut train --resume {here} continues it, {other}")


def _recipe(name: str) -> RunConfig:
    from universal_transformer.recipes import RECIPES

    if name not in RECIPES:
        raise UserError(f"no recipe {name!r}{suggestion(name, RECIPES)}; {_known()}")
    return RECIPES[name]()


def _known() -> str:
    from universal_transformer.recipes import MAIN

    return f"recipes: {', '.join(MAIN)}, and the rows of tables (ut recipes TABLE)"


def _help(recipe: str) -> int:
    """Print the fields of a recipe, or the usage and all recipes."""
    from universal_transformer.cli.fields import print_help
    from universal_transformer.cli.recipes import summary
    from universal_transformer.recipes import RECIPES

    if not recipe.startswith("-"):
        config = _recipe(recipe)
        print_help(config, prog=f"ut train {recipe}", description=f"{summary(RECIPES[recipe])}\n\n{USAGE}")
        return 0
    width = max(map(len, RECIPES))
    lines = [f"  {name:<{width}}  {summary(one)}" for name, one in RECIPES.items()]
    print(USAGE, "", *lines, "", "ut train RECIPE --help shows every field.", sep="\n")
    return 0
