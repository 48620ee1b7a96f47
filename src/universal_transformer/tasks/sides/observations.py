"""The observations of an agent in an environment, up to now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from universal_transformer.data.example import NO_CLASS, Example, Frames
from universal_transformer.errors import UserError
from universal_transformer.files import parse_json, read_lines, show
from universal_transformer.tasks.environments import ENVIRONMENTS, Environment, Name
from universal_transformer.tasks.sides.side import Side
from universal_transformer.typed import Range, check

MOST_FRAMES = 256
TABLE = ".csv"


@dataclass(frozen=True, kw_only=True)
class OfEpisode(Side):
    """What an agent has seen of an episode up to now, one frame for each step of the environment."""

    environment: Name

    def __post_init__(self) -> None:
        check(self)

    @property
    def world(self) -> Environment:
        return ENVIRONMENTS[self.environment]

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(self.world.features[place] for place in self._visible)

    @property
    def _visible(self) -> list[int]:
        return self.world.visible(hide_velocities=True)

    def names(self, positions: Frames) -> list[str]:
        """How long ago each frame was, in steps of the environment: "-2", "-1", "0"."""
        return [str(place) for place in range(1 - len(positions), 1)]


@dataclass(frozen=True, kw_only=True)
class Observations(OfEpisode):
    """The last observations of an episode as frames."""

    kind: ClassVar[str] = "observations"
    suffixes: ClassVar[tuple[str, ...]] = (TABLE,)
    history: Annotated[int, Range(1, MOST_FRAMES)]
    """Most frames of a source."""
    hide_velocities: bool

    @property
    def source_fields(self) -> Mapping[str, Any]:
        return {"inputs.kind": "frames", "inputs.features": len(self.features)}

    def observed(self, observations: Frames) -> Example:
        return self._example(observations[-self.history :, self._visible])

    def read_line(self, line: str, *, where: str) -> Example:
        """A line is JSON, a list of observations, or the path of a table of one observation a line."""
        text = line.strip()
        return self._table(text) if text.lower().endswith(TABLE) else self._parsed(text, where=where)

    @property
    def _visible(self) -> list[int]:
        return self.world.visible(hide_velocities=self.hide_velocities)

    @property
    def _spread(self) -> Frames:
        return np.array([self.world.spread[place] for place in self._visible], dtype=np.float32)

    def _example(self, frames: Frames) -> Example:
        return Example(source=frames / self._spread, target=NO_CLASS)

    def _parsed(self, text: str, *, where: str) -> Example:
        found = parse_json(text, where=where)
        rows = found if isinstance(found, list) and found and all(isinstance(row, list) for row in found) else [found]
        if not all(isinstance(row, list) for row in rows):
            raise UserError(f"{where}: found {show(text)}; expected a list of observations, {self._shape}")
        return self._of_rows([(where, row) for row in rows])

    def _table(self, path: str) -> Example:
        """Read a CSV file of one observation a line; its first line may have the names of the features."""
        rows: list[tuple[str, list[object]]] = []
        for number, line in read_lines(path):
            fields = [field.strip() for field in line.split(",")]
            if number == 1 and sorted(fields) == sorted(self.features):
                if fields != list(self.features):
                    raise UserError(f"{path}:1: the columns {', '.join(fields)}; expected {', '.join(self.features)}")
            elif line.strip():
                rows.append((f"{path}:{number}", [_number(field) for field in fields]))
            if len(rows) > self.history:
                break  # more than are needed to refuse them
        if not rows:
            raise UserError(f"{path}:1: no observation; expected {self._shape} a line")
        return self._of_rows(rows)

    def _of_rows(self, rows: Sequence[tuple[str, list[object]]]) -> Example:
        """Return the example of observations, each with its place for messages."""
        for where, row in rows:
            if len(row) != len(self.features):
                raise UserError(f"{where}: {_numbers(len(row))} in an observation; expected {self._shape}")
            for value, spread in zip(row, self._spread.tolist(), strict=True):
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise UserError(f"{where}: found {show(value)} in an observation; expected a number")
                if not abs(value) < float(np.finfo(np.float32).max) * min(1.0, spread):
                    raise UserError(f"{where}: {show(value)} in an observation; expected a finite number")
        if len(rows) > self.history:
            where, _ = rows[self.history]
            raise UserError(
                f"{where}: more than {self.history} observations; this run takes at most {self.history} "
                "(--data.history of its training): give the last ones"
            )
        return self._example(np.array([row for _, row in rows], dtype=np.float32))

    @property
    def _shape(self) -> str:
        return f"{_numbers(len(self.features))} ({', '.join(self.features)})"


def _numbers(count: int) -> str:
    return f"{count} number{'s' * (count != 1)}"


def _number(field: str) -> object:
    """Return the number that a field of a table has, or the field as it is."""
    try:
        return float(field)
    except ValueError:
        return field
