"""Observations to actions: a scripted expert of classic control is cloned, without the velocities that it sees.

A source has the last observations of an episode as frames, and the class is the expert's action in the last of them.
The velocities are hidden, so that one observation does not say what to do, and several do. Training episodes have a
share of actions at random, which leads to states that the expert alone would not reach; the class is the expert's
action in any case. A model is scored on such episodes of other seeds, and by the return of episodes in which it acts
itself.

An encoder sees its whole source, so that each step of an episode is an example of its own: a model that labels all
positions of an episode at once would see what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from universal_transformer.data.example import NO_CLASS, Example, Frames
from universal_transformer.errors import UserError
from universal_transformer.files import parse_json, read_lines, show
from universal_transformer.tasks.codecs import SavedCodec, token_fields
from universal_transformer.tasks.environments import ENVIRONMENTS, Environment, Episodes, Name
from universal_transformer.tasks.lazy import DeferredExamples
from universal_transformer.tasks.task import Codec, Task
from universal_transformer.typed import NumberOf, Range, check

PARTS = ("train", "validation", "test")
MOST_EPISODES, MOST_FRAMES = 10_000, 256
EpisodeCount = Annotated[int, Range(1, MOST_EPISODES)]
TABLE = ".csv"


@dataclass(frozen=True, kw_only=True)
class ControlCodec(SavedCodec):
    """Observations to frames, and classes to the names of actions."""

    kind: ClassVar[str] = "control"
    suffixes: ClassVar[tuple[str, ...]] = (TABLE,)
    environment: Name
    history: Annotated[int, Range(1, MOST_FRAMES)]
    """Most frames of a source."""
    hide_velocities: bool

    def __post_init__(self) -> None:
        check(self)

    @property
    def world(self) -> Environment:
        """Return the environment."""
        return ENVIRONMENTS[self.environment]

    @property
    def features(self) -> tuple[str, ...]:
        """Return the names of the numbers of a frame."""
        return tuple(self.world.features[place] for place in self._visible)

    @property
    def model_fields(self) -> dict[str, Any]:
        """Return the fields of a model that follow from the observations and the actions."""
        fields = token_fields("classifier", size=None, num_classes=len(self.world.actions))
        return fields | {"inputs.kind": "frames", "inputs.features": len(self.features)}

    def example(self, observations: Frames, *, target: int = NO_CLASS) -> Example:
        """Return the example of the last of all observations [time, feature] of an episode up to now."""
        return self._example(observations[-self.history :, self._visible], target=target)

    def read(self, lines: Iterable[tuple[int, str]], *, name: str) -> Iterator[Example]:
        """Yield one example a line: JSON, a list of observations, or the path of a table of one observation a line."""
        for number, line in lines:
            text = line.strip()
            if text.lower().endswith(TABLE):
                yield self._table(text)
            elif text:
                yield self._parsed(text, where=f"{name}:{number}")

    def render(self, target: int | Sequence[int]) -> str:
        """Return the name of an action."""
        assert isinstance(target, int), "an action is one class"
        return "<unknown>" if target == NO_CLASS else self.world.actions[target]

    def words(self, example: Example) -> list[str]:
        """Return how long ago each frame was, in steps of the environment: "-2", "-1", "0"."""
        return [str(place) for place in range(1 - len(example.source), 1)]

    @property
    def _visible(self) -> list[int]:
        return self.world.visible(hide_velocities=self.hide_velocities)

    @property
    def _spread(self) -> Frames:
        return np.array([self.world.spread[place] for place in self._visible], dtype=np.float32)

    def _example(self, frames: Frames, *, target: int = NO_CLASS) -> Example:
        return Example(source=frames / self._spread, target=target)

    def _parsed(self, text: str, *, where: str) -> Example:
        found = parse_json(text, where=where)
        rows = found if isinstance(found, list) and found and all(isinstance(row, list) for row in found) else [found]
        if not all(isinstance(row, list) for row in rows):
            raise UserError(f"{where}: found {show(text)}; expected a list of observations, {self._shape}")
        return self._observed([(where, row) for row in rows])

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
        return self._observed(rows)

    def _observed(self, rows: Sequence[tuple[str, list[object]]]) -> Example:
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


@dataclass(frozen=True, kw_only=True)
class ControlData:
    """Episodes of classic control, labelled by a scripted expert that sees velocities."""

    codec_class: ClassVar[type[Codec]] = ControlCodec
    environment: Name = "CartPole-v1"
    """The environment of gymnasium."""
    history: Annotated[int, Range(1, MOST_FRAMES)] = 4
    """Observations that the model sees, the present one included; the first steps of an episode have fewer."""
    hide_velocities: bool = True
    """Leave velocities out of what the model sees."""
    random_actions: Annotated[float, Range(0, 1)] = 0.2
    """Part of the actions of the labelled episodes that are drawn at random; the others are those of the expert."""
    train_episodes: EpisodeCount = 100
    """Training episodes; each of their steps is an example."""
    validation_episodes: EpisodeCount = 10
    """Validation episodes."""
    test_episodes: EpisodeCount = 100
    """Test episodes: labelled ones, and as many from the same first states in which the model acts."""
    seed: NumberOf = 0
    """Decides the first states and the random actions; no first state is in two parts."""

    def __post_init__(self) -> None:
        check(self, field="data")

    def load(self) -> Task:
        """Play the labelled episodes; those of training when they are first needed."""
        codec = ControlCodec(environment=self.environment, history=self.history, hide_velocities=self.hide_velocities)
        parts = {part: self.episodes(part) for part in PARTS}
        return Task(
            name="control",
            codec=codec,
            train=DeferredExamples(partial(self._examples, codec, parts["train"])),
            validation=self._examples(codec, parts["validation"]),
            test={"test": self._examples(codec, parts["test"])},
            metric="actions",
            model_fields=codec.model_fields,
            notes=(_about(codec, episodes=self.test_episodes),),
            episodes=parts,
        )

    def episodes(self, part: str) -> Episodes:
        """Return the episodes of a part, each from a state of its own."""
        place, counts = PARTS.index(part), (self.train_episodes, self.validation_episodes, self.test_episodes)
        first = (self.seed * len(PARTS) + place) * MOST_EPISODES
        return Episodes(ENVIRONMENTS[self.environment], tuple(range(first, first + counts[place])))

    def _examples(self, codec: ControlCodec, episodes: Episodes) -> list[Example]:
        played = episodes.play(episodes.mixed(share=self.random_actions, seed=episodes.seeds[0]))
        return [
            codec.example(one.observations[: time + 1], target=action)
            for one in played
            for time, action in enumerate(codec.world.expert_actions(one.observations))
        ]


def _about(codec: ControlCodec, *, episodes: int) -> str:
    """Return what returns are and who sees what."""
    seen = ", ".join(codec.features)
    return (
        f"{codec.environment}: the model sees up to {codec.history} observations ({seen}), the expert one with "
        f"velocities; returns are means over {episodes:,} test episodes"
    )


def _numbers(count: int) -> str:
    return f"{count} number{'s' * (count != 1)}"


def _number(field: str) -> object:
    """Return the number that a field of a table has, or the field as it is."""
    try:
        return float(field)
    except ValueError:
        return field
