"""Whether a checkpoint belongs to the run that is to continue, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from universal_transformer.files import show_path
from universal_transformer.training.changes import OtherRunError, configuration_changes, schedule_jumps
from universal_transformer.training.config import CHECKPOINTS, CONFIG, RunConfig
from universal_transformer.training.recorded_data import DataFile, file_changes
from universal_transformer.training.state import Snapshot


@dataclass(frozen=True)
class GivenRun:
    """The run as it is asked for now; `Snapshot` says what each field is."""

    folder: Path
    config: RunConfig
    data: str
    files: Mapping[str, DataFile]
    surroundings: Mapping[str, str | int]
    accepted: tuple[str, ...]
    """Fields that change deliberately."""

    def compare(self, snapshot: Snapshot) -> list[str]:
        """Return what has changed in the configuration; OtherRunError for other data, or what may not change."""
        if snapshot.data != self.data:
            how = file_changes(snapshot.files, self.files) or [f"examples were {snapshot.data}, are now {self.data}"]
            raise OtherRunError(
                f"{show_path(self.folder)}: the data have changed: {'; '.join(how)}; a run continues with the same data"
            )
        where = f"{show_path(self.folder / CHECKPOINTS / snapshot.name)} and {CONFIG}"
        found = configuration_changes(snapshot.config, self.config, accepted=self.accepted, where=where)
        for field in self.accepted:
            if field not in found:
                raise OtherRunError(
                    f"--accept-change {field}: it has not changed; give its new value, or leave this out"
                )
        return [*found.values(), *schedule_jumps(snapshot.config.training, self.config.training)]

    def warnings(self, snapshot: Snapshot) -> list[str]:
        """Return what is not as it was, and does not stop the run."""
        found = [
            f"{name} was {value}, is now {self.surroundings[name]}: the last bits of the losses may differ"
            for name, value in snapshot.surroundings.items()
            if value != self.surroundings[name]
        ]
        if snapshot.files:
            same = "the examples to train on and to validate are the same"
            found += [f"{text}; {same}" for text in file_changes(snapshot.files, self.files)]
        return found
