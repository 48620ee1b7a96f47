"""The files that a run in progress writes: metrics.jsonl and checkpoints."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from universal_transformer.errors import UserError
from universal_transformer.files import parse_json, show_path, try_lines, write_json, write_text
from universal_transformer.manifest import MODEL
from universal_transformer.runs import checkpoint as checkpoints
from universal_transformer.runs.folder import CHECKPOINTS, CONFIG, METRICS
from universal_transformer.runs.resume import RunOrigin
from universal_transformer.runs.trackers import Tracker
from universal_transformer.training.display import Display, Tensors, Value
from universal_transformer.training.run import Journal, RunState
from universal_transformer.typed import Count, NonNegative, typed


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl, without a last one that is incomplete (a killed run) or no text (no power).

    UserError, naming the line, for anything else that `RunJournal` does not write.
    """
    texts = list(try_lines(path)) if path.stat().st_size else []
    cut = texts and texts[-1].text.startswith("{") and not texts[-1].text.endswith("}")
    if cut or (len(texts) > 1 and texts[-1].fault and path.read_bytes().endswith(b"\0")):
        del texts[-1]
    lines = []
    for number, text, fault in texts:
        if fault:
            raise fault
        where = f"{show_path(path)}:{number}"
        line = typed(parse_json(text, where=where), dict[str, Any], where=where)
        for name, hint in (("event", str), ("update", Count), ("seconds", NonNegative)):
            typed(line.get(name), hint, where=where, field=name)
        lines.append(line)
    return lines


def ending(folder: Path) -> dict[str, Any] | None:
    """Return the last line of the metrics of a finished run in `folder`; None if it is not finished."""
    if not (folder / METRICS).is_file() or not (folder / MODEL).is_dir():
        return None
    lines = read_metrics(folder / METRICS)
    ended = bool(lines) and lines[-1]["event"] == "end" and lines[-1].get("stopped") != "interrupted"
    return lines[-1] if ended else None


class RunJournal(Journal):
    """Writes the run in `folder`, which continues from the saved state `after`; None starts a new one.

    config.json is written at once. metrics.jsonl has one JSON object a line, with event, update, seconds and values.
    Each is on disk at once, and its numbers go to the `tracker`. Lines that were written after `after` was saved are
    deleted: an ending that is made again is not written twice.
    """

    def __init__(
        self,
        shown: Display,
        folder: Path,
        origin: RunOrigin,
        *,
        after: RunState | None,
        tracker: Tracker | None = None,
    ) -> None:
        super().__init__(shown)
        self.folder, self.origin, path = folder, origin, folder / METRICS
        kept = []
        if after is not None and path.exists():
            kept = [line for line in read_metrics(path)[: after.lines] if line["update"] <= after.update]
            if not kept:
                raise UserError(
                    f"{show_path(path)}: no line up to update {after.update} of this run; move the file away to begin "
                    "another"
                )
        # metrics without a configuration would be no run; where they cannot be read, the configuration stays
        write_json(folder / CONFIG, origin.config.to_dict())
        if after is not None:
            write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self.lines = len(kept)
        self.metrics = path.open("a" if after is not None else "w", encoding="utf-8", buffering=1)
        self.tracker = tracker
        if tracker is not None:
            tracker.start(origin.config.to_dict(), after=after.update if after else 0)

    def write(self, event: str, *, update: int, seconds: float, values: Mapping[str, Value]) -> None:
        """Append a line without values that are not finite, which JSON lacks, and report its numbers."""
        kept = {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}
        line = {"event": event, "update": update, "seconds": round(seconds, 3), **kept}
        self.metrics.write(json.dumps(line, allow_nan=False) + "\n")
        self.lines += 1
        if self.tracker is not None and event in ("update", "validation") and values.get("weights", "last") == "last":
            numbers = {f"{event}/{name}": value for name, value in values.items() if isinstance(value, float | int)}
            self.tracker.log(numbers, update=update)

    def save(self, state: RunState, tensors: Mapping[str, Tensors]) -> None:
        """Write a checkpoint, after every line is on disk."""
        os.fsync(self.metrics.fileno())
        state.lines = self.lines
        fields = {"run": dataclasses.asdict(state), "origin": self.origin.to_dict()}
        name = f"{state.update:09d}-{state.saves:06d}"
        checkpoints.save(self.folder / CHECKPOINTS, checkpoints.Checkpoint(tensors, fields), name=name)

    def close(self) -> None:
        self.metrics.close()
        if self.tracker is not None:
            self.tracker.finish()
