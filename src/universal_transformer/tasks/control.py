"""Observations to actions: a scripted expert of classic control is cloned, without the velocities that it sees.

A source has the last observations of an episode as frames, and the class is the expert's action in the last of them.
The velocities are hidden, so that one observation does not say what to do, and several do. Training episodes have a
share of actions at random, which leads to states that the expert alone would not reach; the class is the expert's
action in any case. A model is scored on such episodes of other seeds, and by the return of episodes in which it acts
itself.

An encoder sees its whole source, so that each step of an episode is an example of its own: a model that labels all
positions of an episode at once would see what follows.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

from universal_transformer.data.example import Example
from universal_transformer.tasks.codec import Codec
from universal_transformer.tasks.environments import ENVIRONMENTS, Environment, Episode, Episodes, Name
from universal_transformer.tasks.lazy import DeferredExamples
from universal_transformer.tasks.sides.listed import Classes
from universal_transformer.tasks.sides.observations import MOST_FRAMES, Observations
from universal_transformer.tasks.sides.side import Sides
from universal_transformer.tasks.task import Saved, Task
from universal_transformer.typed import NumberOf, Range, check

PARTS = ("train", "validation", "test")
MOST_EPISODES = 10_000
EpisodeCount = Annotated[int, Range(1, MOST_EPISODES)]


@dataclass(frozen=True, kw_only=True)
class ExpertData(ABC):
    """Base of tasks on episodes that are labelled by a scripted expert."""

    environment: Name = "CartPole-v1"
    """The environment of gymnasium."""
    history: Annotated[int, Range(1, MOST_FRAMES)] = 4
    """Observations that the model sees, the present one included; the first steps of an episode have fewer."""
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

    @property
    def world(self) -> Environment:
        return ENVIRONMENTS[self.environment]

    @abstractmethod
    def examples(self, codec: Codec[Any, Any], played: Episode) -> Iterator[Example]:
        """Yield the examples of an episode."""

    def task(self, codec: Codec[Any, Any], *, name: str, metric: str, note: str) -> Task:
        """Play the labelled episodes; those of training when they are first needed."""
        parts = {part: self.episodes(part) for part in PARTS}
        return Task(
            name=name,
            codec=codec,
            train=DeferredExamples(partial(self._labelled, codec, parts["train"])),
            validation=self._labelled(codec, parts["validation"]),
            test={"test": self._labelled(codec, parts["test"])},
            metric=metric,
            notes=(f"{note}; returns are means over {self.test_episodes:,} test episodes",),
            episodes=parts,
        )

    def episodes(self, part: str) -> Episodes:
        place, counts = PARTS.index(part), (self.train_episodes, self.validation_episodes, self.test_episodes)
        first = (self.seed * len(PARTS) + place) * MOST_EPISODES
        return Episodes(self.world, tuple(range(first, first + counts[place])))

    def _labelled(self, codec: Codec[Any, Any], episodes: Episodes) -> list[Example]:
        played = episodes.play(episodes.mixed(share=self.random_actions, seed=episodes.seeds[0]))
        return [example for episode in played for example in self.examples(codec, episode)]


@dataclass(frozen=True, kw_only=True)
class ControlData(ExpertData):
    """Episodes of classic control, labelled by a scripted expert that sees velocities."""

    sides: ClassVar[Sides] = (Observations, Classes)
    hide_velocities: bool = True
    """Leave velocities out of what the model sees."""

    def load(self, saved: Saved | None = None) -> Task:
        del saved  # the codec follows from the fields
        seen = Observations(environment=self.environment, history=self.history, hide_velocities=self.hide_velocities)
        codec = Codec(source=seen, target=Classes(self.world.actions))
        note = (
            f"{self.environment}: the model sees up to {self.history} observations ({', '.join(seen.features)}), the "
            "expert one with velocities"
        )
        return self.task(codec, name="control", metric="actions", note=note)

    def examples(self, codec: Codec[Any, Any], played: Episode) -> Iterator[Example]:
        for time, action in enumerate(self.world.expert_actions(played.observations)):
            yield replace(codec.source.observed(played.observations[: time + 1]), target=action)
