"""Classic control: environments, a scripted expert for each, and episodes. The one module that imports gymnasium.

An expert is a rule over positions and velocities. It needs no history, and it is what a model of histories without
velocities learns from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from universal_transformer.data.example import Frames
from universal_transformer.errors import UserError

Name = Literal["CartPole-v1", "Acrobot-v1", "MountainCar-v0"]
Policy = Callable[[Sequence[Frames]], Sequence[Sequence[int]]]
"""The observations [time, feature] of each episode, up to now, to its next actions, at least one."""


@dataclass(frozen=True)
class Environment:
    """What is observed, what can be done, and an expert."""

    name: Name
    features: tuple[str, ...]
    """Names of the observed numbers."""
    velocities: tuple[str, ...]
    """Those of them that the earlier observations imply."""
    spread: tuple[float, ...]
    """About the standard deviation of each feature where the expert acts with a fifth of random actions; a model reads
    numbers divided by it."""
    actions: tuple[str, ...]
    expert: Callable[[Mapping[str, float]], int]
    """The action for named observations."""
    lines: Callable[[Frames], Frames]
    """Observations [time, feature] to what a picture of them has: x and y of both ends of each line [time, line, 4], in
    a square from 0 at the left and at the bottom to 1. What never moves is left out."""

    def visible(self, *, hide_velocities: bool) -> list[int]:
        hidden = self.velocities if hide_velocities else ()
        return [place for place, name in enumerate(self.features) if name not in hidden]

    def expert_actions(self, observations: Frames) -> list[int]:
        return [self.expert(dict(zip(self.features, row, strict=True))) for row in observations.tolist()]


def _balance(seen: Mapping[str, float]) -> int:
    """Push to the side to which the pole falls, and a little towards the middle of the track."""
    falls = seen["pole_angle"] + 0.25 * seen["pole_velocity"]
    leaves = 0.02 * seen["cart_position"] + 0.06 * seen["cart_velocity"]
    return int(falls + leaves > 0)


def _swing(seen: Mapping[str, float]) -> int:
    """Apply the torque along the velocity of the second joint, which adds energy."""
    return 2 if seen["velocity_2"] > 0 else 0


def _rock(seen: Mapping[str, float]) -> int:
    """Accelerate along the velocity, which adds energy."""
    return 2 if seen["velocity"] > 0 else 0


def _pole(seen: Frames) -> Frames:
    """The pole, from a cart that stays in the middle, and below it the place of the cart on its track."""
    position, angle, low = 0.5 + seen[:, 0] / 5, seen[:, 2], np.full(len(seen), 0.05)
    pole = (low + 0.45, low + 0.1, 0.5 + 0.8 * np.sin(angle), 0.15 + 0.8 * np.cos(angle))
    return _stacked(pole, (position - 0.05, low, position + 0.05, low))


def _arms(seen: Frames) -> Frames:
    """Both links; the first hangs from the middle."""
    cosine, sine, cosine_2, sine_2 = seen[:, :4].T
    x, y, middle = 0.5 + 0.22 * sine, 0.5 - 0.22 * cosine, np.full(len(seen), 0.5)
    turned = sine * cosine_2 + cosine * sine_2, cosine * cosine_2 - sine * sine_2
    return _stacked((middle, middle, x, y), (x, y, x + 0.22 * turned[0], y - 0.22 * turned[1]))


def _car(seen: Frames) -> Frames:
    """The car, at its height on the hill."""
    x, y = 0.1 + 0.8 * (seen[:, 0] + 1.2) / 1.8, 0.5 + 0.4 * np.sin(3 * seen[:, 0])
    return _stacked((x - 0.08, y, x + 0.08, y))


def _stacked(*lines: Sequence[NDArray[Any]]) -> Frames:
    return np.stack([np.stack(ends, axis=-1) for ends in lines], axis=1, dtype=np.float32)


ENVIRONMENTS: Mapping[Name, Environment] = {
    world.name: world
    for world in (
        Environment(
            name="CartPole-v1",
            features=("cart_position", "cart_velocity", "pole_angle", "pole_velocity"),
            velocities=("cart_velocity", "pole_velocity"),
            spread=(0.3, 0.2, 0.02, 0.25),
            actions=("left", "right"),
            expert=_balance,
            lines=_pole,
        ),
        Environment(
            name="Acrobot-v1",
            features=("cos_1", "sin_1", "cos_2", "sin_2", "velocity_1", "velocity_2"),
            velocities=("velocity_1", "velocity_2"),
            spread=(0.5, 0.6, 0.7, 0.7, 2.0, 5.0),
            actions=("clockwise", "none", "anticlockwise"),
            expert=_swing,
            lines=_arms,
        ),
        Environment(
            name="MountainCar-v0",
            features=("position", "velocity"),
            velocities=("velocity",),
            spread=(0.4, 0.03),
            actions=("left", "none", "right"),
            expert=_rock,
            lines=_car,
        ),
    )
}


@dataclass(frozen=True)
class Episode:
    """One episode: the observations [time, feature] on which an action followed, the actions, and their reward."""

    observations: Frames
    actions: NDArray[np.int64]
    total: float
    """Sum of the rewards: the return."""


@dataclass(frozen=True)
class Episodes:
    """Episodes in one environment, each from the state that its seed draws."""

    environment: Environment
    seeds: tuple[int, ...]

    def play(self, policy: Policy) -> list[Episode]:
        """Step all episodes together until each has ended. `policy` is asked for those that go on and have carried out
        all actions that it gave them.
        """
        gymnasium = load_gymnasium()
        worlds = [gymnasium.make(self.environment.name, disable_env_checker=True) for _ in self.seeds]
        longest = worlds[0].spec.max_episode_steps
        seen = np.zeros((len(worlds), longest, len(self.environment.features)), dtype=np.float32)
        done = np.zeros((len(worlds), longest), dtype=np.int64)
        totals, lengths = [0.0] * len(worlds), [0] * len(worlds)
        for place, (world, seed) in enumerate(zip(worlds, self.seeds, strict=True)):
            seen[place, 0], _ = world.reset(seed=seed)
        live, time, next_actions = list(range(len(worlds))), 0, [list[int]() for _ in worlds]
        while live:
            time += 1
            going_on, asked = [], [place for place in live if not next_actions[place]]
            given = policy([seen[place, :time] for place in asked]) if asked else ()
            for place, actions in zip(asked, given, strict=True):
                next_actions[place] = [*actions]
            for place in live:
                action = next_actions[place].pop(0)
                observation, reward, terminated, truncated, _ = worlds[place].step(action)
                done[place, time - 1], lengths[place] = action, time
                totals[place] += float(reward)
                if not (terminated or truncated):
                    seen[place, time] = observation
                    going_on.append(place)
            live = going_on
        return [
            Episode(frames[:length], actions[:length], total)
            for frames, actions, length, total in zip(seen, done, lengths, totals, strict=True)
        ]

    def mean_return(self, policy: Policy) -> float:
        return float(np.mean([episode.total for episode in self.play(policy)]))

    def expert(self, frames: Sequence[Frames]) -> list[list[int]]:
        return [self.environment.expert_actions(one[-1:]) for one in frames]

    def mixed(self, *, share: float = 1.0, seed: int) -> Policy:
        """Return the policy that draws so large a `share` of the actions at random, and else acts as the expert."""
        draw = np.random.default_rng(seed)

        def act(frames: Sequence[Frames]) -> list[list[int]]:
            drawn = draw.integers(len(self.environment.actions), size=(len(frames), 1)).tolist()
            random = (draw.random(len(frames)) < share).tolist()
            given = self.expert(frames) if share < 1 else drawn
            return [one if chosen else other for chosen, one, other in zip(random, drawn, given, strict=True)]

        return act


def load_gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError("control needs gymnasium: run pip install 'universal-transformer[control]'") from error
    return gymnasium
