"""What commands read from a run folder: configuration, model, codec, data, and whether training is finished."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from universal_transformer.errors import UserError, refuse, suggestion
from universal_transformer.files import quoted, show, show_path
from universal_transformer.manifest import MODEL
from universal_transformer.pretrained_models import find, is_pretrained, known
from universal_transformer.runs.folder import CONFIG, HELD_OUT, METRICS
from universal_transformer.typed import listed, replaced

if TYPE_CHECKING:
    from universal_transformer.models.model import Model
    from universal_transformer.tasks.codec import Codec
    from universal_transformer.tasks.task import Task, TaskData
    from universal_transformer.training.run_config import RunConfig

STANDARD_INPUT = "-"
"""In place of the name of a test file."""


@dataclass(frozen=True)
class Run:
    """A run folder with a trained model."""

    folder: Path
    config: RunConfig
    model: Model
    codec: Codec[Any, Any]
    other_reports: str = ""
    """Where reports are written, if that is not its folder."""

    @property
    def reports(self) -> Path:
        """Where reports are written; those of a pretrained model are in a folder of its name in the current one."""
        own = Path(self.folder.name) if is_pretrained(self.folder) else self.folder
        return Path(self.other_reports) if self.other_reports else own


def read_config(folder: Path) -> RunConfig:
    """Return the configuration of the run in `folder`, or of the pretrained model of this name."""
    from universal_transformer.training.run_config import RunConfig

    folder = find(folder)
    name = show_path(folder)
    there = (folder / CONFIG).is_file()
    others = "" if there else other_runs(folder)
    refuse(
        (not folder.exists(), f"no such run folder{others}{known(folder)}"),
        (not folder.is_dir(), "a file; expected the folder of a run, which `ut train` makes"),
        (not there, f"not a run folder: there is no {CONFIG} in it{others}"),
        (
            folder.name == MODEL and (folder.parent / CONFIG).is_file(),
            f"the model of a run; name the run: {show_path(folder.parent)}",
        ),
        at=name,
    )
    return RunConfig.load(folder / CONFIG)


def open_run(folder: Path, *, device: str = "cpu", halting_execution: Literal["auto", "masked"] | None = None) -> Run:
    """Load the model and the codec of the run in `folder`, or of the pretrained model of this name.

    `halting_execution` replaces the configured one.
    """
    config, folder = read_config(folder), find(folder)
    name = show_path(folder)
    if not (folder / MODEL).is_dir():
        raise UserError(
            f"{name}: no model in this run yet: it is written when training ends; "
            f"continue with: ut train --resume {quoted(folder)}"
        )
    from universal_transformer.evaluation.tensors import pick_device
    from universal_transformer.registry import load_pretrained
    from universal_transformer.tasks.codec import Codec

    place = pick_device(device, field="--device")
    model = load_pretrained(folder / MODEL)
    if halting_execution is not None:
        model.use_halting_execution(halting_execution)
    run = Run(folder=folder, config=config, model=model.to(place), codec=Codec.load(folder / MODEL))
    _check_fit(run)
    return run


def _check_fit(run: Run) -> None:
    """UserError if the codec is not of the kind that the data have, or of other sizes than the model."""
    data, name = run.config.data, show_path(run.folder)
    found, needed = (
        " and ".join(side.kind for side in sides) for sides in ((run.codec.source, run.codec.target), data.sides)
    )
    if found != needed:
        raise UserError(f"{name}: the codec in {MODEL} is of kinds {found}; the data in {CONFIG} need {needed}")
    _check_sizes(run, run.codec.model_fields, what=f"{MODEL} and its codec are of different runs")


def _check_sizes(run: Run, fields: Mapping[str, Any], *, what: str) -> None:
    for path, ours in fields.items():
        theirs = attrgetter(path)(run.model.config)
        if ours != theirs:
            raise UserError(f"{show_path(run.folder)}: {what}: {path} of the model is {theirs!r}, not {ours!r}")


def load_task(run: Run) -> Task:
    """Load the data of a run, encoded with the codec that it saved; data that do not fit its model are refused."""
    from universal_transformer.tasks.task import Saved

    data = run.config.data
    # the tokenizer is saved with the model, and what is not scored is read only when it is asked for
    unscored = ("train", "validation") if getattr(data, "test", "") else ("train",)
    may_miss = ("tokenizer", *unscored, *(f"{part}_target" for part in unscored))
    data = with_found_files(run.config, run.folder, may_miss=may_miss).data
    task = data.load(Saved(codec=run.codec, held_out=run.folder / HELD_OUT))
    _check_sizes(run, task.codec.model_fields, what="the data have changed since training")
    return task


@dataclass(frozen=True)
class OwnTests:
    """Test files that are named at evaluation."""

    files: Sequence[str] = ()
    """Each is FILE or NAME=FILE."""
    targets: Sequence[str] = ()
    group: str | None = None
    """The column of groups; None: that of the run."""

    def labels(self) -> list[str]:
        """Return the name of each test set that has one, else its file as it was given: others may be called so."""
        return [file if name == Path(file).name else name for name, file in self.named().items()]

    def named(self) -> dict[str, str]:
        files: dict[str, str] = {}
        for given in self.files:
            name, equals, file = given.partition("=")
            if not equals or Path(given).is_file():
                name, file = Path(given).name, given
            if file == STANDARD_INPUT:
                name, file = "standard input" if name == file else name, "/dev/stdin"
            refuse(
                (not name or not file, "expected FILE or NAME=FILE"),
                (name in files, f"two test sets of the name {show(name)}; write NAME=FILE"),
                at=f"--data.test {show(given)}",
            )
            files[name] = file
        return files

    def data_of(self, data: TaskData) -> dict[str, TaskData]:
        """Return the data of a run with each test set in the place of its own; UserError if it has no such files."""
        from universal_transformer.tasks import task_name

        files, fields = self.named(), {field.name for field in dataclasses.fields(data)}
        given = {"test": self.files, "test_target": self.targets, "group": self.group}
        unknown = [f"--data.{name.replace('_', '-')}" for name, value in given.items() if value and name not in fields]
        refuse(
            (
                unknown,
                f"{' and '.join(unknown)}: the data of this run, task {task_name(data)}, have no "
                + ("groups" if unknown == ["--data.group"] else "such files"),
            ),
            (
                self.targets and len(self.targets) != len(files),
                f"--data.test-target: found {len(self.targets)} files; expected {len(files)}",
            ),
            (not files, f"--data.group {show(self.group)}: name the files with --data.test"),
            *(
                (not Path(path).exists(), f"--data.test: {show_path(path)}: no such file")
                for path in (*files.values(), *self.targets)
            ),
        )
        found: dict[str, TaskData] = {}
        for (name, file), target in zip(files.items(), self.targets or [""] * len(files), strict=True):
            changes: dict[str, Any] = {"test": file, "test_target": target}
            changes |= {} if self.group is None else {"group": self.group}
            found[name] = dataclasses.replace(data, **{field: changes[field] for field in changes.keys() & fields})
        return found


def open_with_task(
    folder: Path,
    *,
    device: str = "auto",
    data_dir: str = "",
    other: str = "",
    own: OwnTests | None = None,
    halting_execution: Literal["auto", "masked"] | None = None,
    validation_size: int | None = None,
) -> tuple[Run, Task]:
    """Load the run in `folder` and its data (from `data_dir`, if that is given), the data set `other`, or own tests.

    `validation_size` replaces the number of validation examples that a task draws.
    """
    from universal_transformer.tasks import OTHER_TESTS
    from universal_transformer.tasks.task import with_validation_size

    run = open_run(folder, device=device, halting_execution=halting_execution)
    if other:
        architecture = run.model.config.architecture
        refuse(
            (other not in OTHER_TESTS, f"expected one of {listed(OTHER_TESTS) or 'none without a clone'}"),
            (
                architecture != "language_model",
                f"{folder} holds a model of architecture {architecture}; this needs the run of a language model "
                "(ut train text, agreement or lambada)",
            ),
            at=f"--data {other}",
        )
        return run, OTHER_TESTS[other](run.codec, data_dir=data_dir)
    if data_dir and hasattr(run.config.data, "data_dir"):
        run = replaced(run, {"config.data.data_dir": data_dir})
    if validation_size is not None:
        run = replaced(run, {"config.data": with_validation_size(run.config.data, validation_size)})
    if own is None or not (own.files or own.targets or own.group is not None):
        try:
            return run, load_task(run)
        except UserError as error:
            if not is_pretrained(run.folder):
                raise
            from universal_transformer.pretrained_models.card import read_card

            raise UserError(f"{error}. Data of {run.folder.name}: {read_card(run.folder).data}") from error
    tasks = {
        name: load_task(replaced(run, {"config.data": data})) for name, data in own.data_of(run.config.data).items()
    }
    notes = dict.fromkeys(note for task in tasks.values() for note in task.notes)
    tests = {name: task.test["test"] for name, task in tasks.items()}
    return run, dataclasses.replace(next(iter(tasks.values())), test=tests, notes=tuple(notes))


def with_found_files(config: RunConfig, folder: Path, *, may_miss: Collection[str] = ()) -> RunConfig:
    """Return a configuration with the names of its files where they are now.

    A file that is not at its name is looked for where it was relative to the run, which may have been moved together
    with it. UserError names both places, unless it is one of the fields that `may_miss`.
    """
    from universal_transformer.tasks.task import file_fields, with_files

    found: dict[str, Path] = {}
    for field, path in file_fields(config.data).items():
        if path.exists():
            continue
        if (other := _moved(path, folder)) is not None and other.exists():
            found[field] = other
        elif field not in may_miss:
            also = f", nor {show_path(other)}, its place relative to the run" if other not in (None, path) else ""
            raise UserError(
                f"{show_path(path)}: no such file{also}; data.{field} of {show_path(folder / CONFIG)} names it"
            )
    return dataclasses.replace(config, data=with_files(config.data, found)) if found else config


def _moved(path: Path, folder: Path) -> Path | None:
    """Return where a file is if the folder of the run and the file were moved together."""
    from universal_transformer.runs.journal import read_metrics

    if not (folder / METRICS).is_file():
        return None
    starts = [line for line in read_metrics(folder / METRICS) if line.get("event") == "start"]
    before = starts[0].get("folder") if starts else None
    if not isinstance(before, str) or not path.is_absolute():
        return None
    return Path(os.path.normpath(folder.absolute() / os.path.relpath(path, before)))


def load_data(config: RunConfig) -> Task:
    """Load the data of a new run; the error for a missing known data set says how to get it."""
    from universal_transformer.data.download import data_folder, find
    from universal_transformer.data.sources import DATASETS

    path = Path(getattr(config.data, "train", ""))
    for name in DATASETS:
        if path.parent == data_folder() / name and not path.exists():
            find(name, file=path.name)
    return config.data.load()


def limit_of(folder: Path) -> str:
    """Return the option that ended training in `folder`; empty if it is interrupted or in progress."""
    from universal_transformer.runs.journal import ending

    reason = str((ending(folder) or {}).get("stopped", ""))
    return f"--{reason.replace('_', '-')}" * bool(reason)


def other_runs(folder: Path) -> str:
    """Return a hint that names the runs next to `folder`, or in ``runs``."""
    places = [folder, *folder.parent.glob("*"), *Path("runs").glob("*")]
    runs = sorted({path.as_posix() for path in places if os.path.isfile(path / CONFIG)})
    guess = suggestion(folder.as_posix(), runs)
    return guess or f"; runs here: {', '.join(runs[:5])}{', …' * (len(runs) > 5)}" * bool(runs)
