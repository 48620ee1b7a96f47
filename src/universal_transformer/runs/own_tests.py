"""Test files that are named at evaluation: ``ut evaluate RUN --data.test FILE NAME=FILE``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from universal_transformer.errors import UserError
from universal_transformer.files import show, show_path

if TYPE_CHECKING:
    from universal_transformer.tasks import TaskData


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

    def data_of(self, data: TaskData) -> dict[str, TaskData]:
        """Return the data of a run with each test set in the place of its own; UserError if it has no such files."""
        from universal_transformer.tasks import task_name

        files, fields = self.named(), {field.name for field in dataclasses.fields(data)}
        if "test" not in fields:
            raise UserError(
                "--data.test and --data.group are for runs on own files (pairs, text, labelled, tagged, parsing, "
                f"pictures, captions); the task of this run, {task_name(data)}, has its own test sets"
            )
        if self.targets and ("test_target" not in fields or len(self.targets) != len(files)):
            allowed = f"one for each of the {len(files)} files of --data.test" if "test_target" in fields else "none"
            raise UserError(f"--data.test-target: found {len(self.targets)} files; expected {allowed}")
        if self.group is not None and ("group" not in fields or not files):
            allowed = "name the files with --data.test" if "group" in fields else "these files have no column of groups"
            raise UserError(f"--data.group {show(self.group)}: {allowed}")
        found: dict[str, TaskData] = {}
        for (name, file), target in zip(files.items(), self.targets or [""] * len(files), strict=True):
            for path in filter(None, (file, target)):
                if not Path(path).exists():
                    raise UserError(f"--data.test: {show_path(path)}: no such file")
            changes: dict[str, Any] = {"test": file, "test_target": target}
            changes |= {} if self.group is None else {"group": self.group}
            found[name] = dataclasses.replace(data, **{field: changes[field] for field in changes.keys() & fields})
        return found
