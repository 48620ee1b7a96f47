"""Test files that are named at evaluation: ``ut evaluate RUN --data.test FILE NAME=FILE``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path

if TYPE_CHECKING:
    from universal_transformer.runs.opened import Run
    from universal_transformer.tasks.task import Task


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
        """Return the file of each test set."""
        found: dict[str, str] = {}
        for given in self.files:
            name, equals, file = given.partition("=")
            if not equals or Path(given).is_file():
                name, file = Path(given).name, given
            if not name or not file:
                raise UserError(f"--data.test {show(given)}: expected FILE or NAME=FILE")
            if name in found:
                raise UserError(f"--data.test {show(given)}: two test sets of the name {show(name)}; write NAME=FILE")
            found[name] = file
        return found


def load_own_tests(run: Run, own: OwnTests) -> Task:
    """Load the test files as test sets of the task of a run."""
    from universal_transformer.runs.opened import load_task
    from universal_transformer.tasks import task_name

    data, files = run.config.data, own.named()
    fields = {one.name for one in dataclasses.fields(data)}
    if "test" not in fields:
        raise UserError(
            "--data.test and --data.group are for runs on own files (pairs, text, labelled, tagged, parsing, pictures, "
            f"captions); the task of this run, {task_name(data)}, has its own test sets"
        )
    if own.targets and ("test_target" not in fields or len(own.targets) != len(files)):
        allowed = f"one for each of the {len(files)} files of --data.test" if "test_target" in fields else "none"
        raise UserError(f"--data.test-target: found {len(own.targets)} files; expected {allowed}")
    if own.group is not None and ("group" not in fields or not files):
        allowed = "name the files with --data.test" if "group" in fields else "these files have no column of groups"
        raise UserError(f"--data.group {show(own.group)}: {allowed}")
    tasks: dict[str, Task] = {}
    for index, (name, file) in enumerate(files.items()):
        target = own.targets[index] if own.targets else ""
        for path in filter(None, (file, target)):
            if not Path(path).exists():
                raise UserError(f"--data.test: {show_path(path)}: no such file")
        changes = {
            "test": file,
            "test_target": target,
            "group": getattr(data, "group", "") if own.group is None else own.group,
        }
        changed = dataclasses.replace(data, **{field: changes[field] for field in changes.keys() & fields})
        config = dataclasses.replace(run.config, data=changed)
        tasks[name] = load_task(dataclasses.replace(run, config=config))
    notes = dict.fromkeys(note for task in tasks.values() for note in task.notes)
    tests = {name: task.test["test"] for name, task in tasks.items()}
    return dataclasses.replace(next(iter(tasks.values())), test=tests, notes=tuple(notes))
